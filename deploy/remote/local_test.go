package remote_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// Close ends the commands on this machine.
func TestCloseEndsLocalCommands(t *testing.T) {
	host, err := remote.NewLocal("node-1", nil, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := host.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid, result := started(t, conn, context.Background(), "sleep 60; :")
	host.Close()
	if err := <-result; !errors.Is(err, remote.ErrClosed) {
		t.Errorf("error %v", err)
	}
	gone(t, pid, time.Second)
}
