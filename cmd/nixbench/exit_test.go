package main

import (
	"errors"
	"testing"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
)

// A switch that locks us out has failed, whatever we last met at the door.
func TestLockedOutIsNotUnreachable(t *testing.T) {
	down := &remote.UnreachableError{Node: "m1", Addr: "m1:22", Err: errors.New("i/o timeout")}
	lost := &deploy.NodeError{Node: "m1", Step: event.Activate, Err: &activate.LostSightError{Node: "m1", Err: down}}
	for _, test := range []struct {
		err  error
		want int
	}{
		{down, exitUnreachable},
		{lost, exitActivation},
		{errors.Join(lost, down), exitUnreachable},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
}
