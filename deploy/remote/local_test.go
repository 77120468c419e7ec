package remote_test

import (
	"context"
	"errors"
	"strings"
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

func TestCommandInErrorsIsOneLine(t *testing.T) {
	for want, argv := range map[string][]string{
		"systemctl is-active sshd":               {"systemctl", "is-active", "sshd"},
		"sh -c { echo 1 echo 2 }…":               {"sh", "-c", "{\n  echo 1\n  echo 2\n}"},
		"sh -c " + strings.Repeat("é", 54) + "…": {"sh", "-c", strings.Repeat("é", 100) + "\n"},
	} {
		if got := (remote.Cmd{Argv: argv}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
