package activate

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// An error contains the node once, however many steps wrap it.
func TestErrorsNameTheNodeOnce(t *testing.T) {
	down := remote.NewUnreachableError("web-1", "10.0.0.1:22", "", errors.New("i/o timeout"))
	step := newStepError("web-1", stepActivate, down)
	off := remote.NewUnreachableError("web-1", "10.0.0.1:22", "off (libvirt: shut off)", down)
	for _, test := range []struct {
		err  error
		want string
	}{
		{step, "web-1: activate: cannot reach 10.0.0.1:22: i/o timeout"},
		{newLostSightError("web-1", newPath, time.Minute, 0, step), "web-1: could not confirm the switch to " + newPath +
			"; the node rolls back 1m0s after the switch unless it is confirmed: cannot reach 10.0.0.1:22: i/o timeout"},
		{newLostSightError("web-1", newPath, time.Minute, 57800*time.Millisecond, down), "web-1: could not confirm the switch to " + newPath +
			"; the node rolls back in 58s unless it is confirmed: cannot reach 10.0.0.1:22: i/o timeout"},
		{newLostSightError("web-1", newPath, time.Minute, 0, off), "web-1: could not confirm the switch to " + newPath +
			": cannot reach 10.0.0.1:22: its machine is off (libvirt: shut off); it boots its previous system"},
		{newLostSightError("web-1", newPath, 0, 0, down), "web-1: the result of the switch to " + newPath + " is unknown, and the switch continues on the node: cannot reach 10.0.0.1:22: i/o timeout"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
		if !errors.Is(test.err, down) {
			t.Errorf("%v hides its cause", test.err)
		}
	}
}

// A connection that is lost during an inspection is not an error of a later step.
func TestInspectError(t *testing.T) {
	lost := &remote.LostError{About: failure.About{Node: "m1", Err: io.EOF}}
	timeout := &remote.TimeoutError{About: failure.About{Node: "m1", Err: context.DeadlineExceeded}}
	for _, err := range []error{lost, timeout} {
		if _, got := wrapInspectError(Node{}, err); failure.KindOf(got) != failure.Unreachable || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%#v", got)
		}
	}
	refused := &remote.AuthError{}
	if _, got := wrapInspectError(Node{}, refused); got != error(refused) {
		t.Errorf("%#v", got)
	}
	if _, got := wrapInspectError(Node{}, nil); got != nil {
		t.Errorf("%#v", got)
	}
}
