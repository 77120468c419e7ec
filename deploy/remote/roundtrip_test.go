package remote_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// A round trip ends with the answer of the server, or with the context if there is none.
func TestRoundTrip(t *testing.T) {
	s := inProcess(t, want{hostKey: newKey(t), user: newKey(t)})
	conn := dial(t, s.config(t), remote.Options{})
	if took, err := conn.RoundTrip(t.Context()); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
	s.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.RoundTrip(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that does not answer: %v", err)
	}
	s.thaw()
	conn.Close()
	if _, err := conn.RoundTrip(t.Context()); err == nil {
		t.Error("a closed connection has a round trip")
	}
}
