package activate

import (
	"errors"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// An error contains the node once, however many steps wrap it.
func TestErrorsNameTheNodeOnce(t *testing.T) {
	down := &remote.UnreachableError{Node: "web-1", Addr: "10.0.0.1:22", Err: errors.New("i/o timeout")}
	step := &stepError{"web-1", "activate", down}
	off := &remote.UnreachableError{Node: "web-1", Addr: "10.0.0.1:22", Down: "off (libvirt: shut off)", Err: down}
	for _, test := range []struct {
		err  error
		want string
	}{
		{step, "web-1: activate: cannot reach 10.0.0.1:22: i/o timeout"},
		{&LostSightError{Node: "web-1", Path: newPath, Armed: time.Minute, Err: step}, "web-1: could not confirm the switch to " + newPath +
			"; the node rolls back automatically, at the latest 1m0s after the switch: cannot reach 10.0.0.1:22: i/o timeout"},
		{&LostSightError{Node: "web-1", Path: newPath, Armed: time.Minute, Err: off}, "web-1: could not confirm the switch to " + newPath +
			": cannot reach 10.0.0.1:22: its machine is off (libvirt: shut off); it boots its previous system"},
		{&LostSightError{Node: "web-1", Path: newPath, Err: down}, "web-1: the result of the switch to " + newPath + " is unknown, and the switch continues on the node: cannot reach 10.0.0.1:22: i/o timeout"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
		if !errors.Is(test.err, down) {
			t.Errorf("%v hides its cause", test.err)
		}
	}
}
