package node

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
)

// A connection that is lost during the inspection is an error of the connect step, not of a later one.
func TestInspectError(t *testing.T) {
	lost := &remote.LostError{About: failure.About{Node: "m1", Err: io.EOF}}
	timeout := &remote.TimeoutError{About: failure.About{Node: "m1", Err: context.DeadlineExceeded}}
	for _, err := range []error{lost, timeout} {
		var n *fleet.NodeError
		if got := wrapInspectError("m1", err); !errors.As(got, &n) || n.Step != event.Connect || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%#v", got)
		}
	}
	refused := &remote.AuthError{}
	if got := wrapInspectError("m1", refused); got != error(refused) {
		t.Errorf("%#v", got)
	}
	if got := wrapInspectError("m1", nil); got != nil {
		t.Errorf("%#v", got)
	}
}
