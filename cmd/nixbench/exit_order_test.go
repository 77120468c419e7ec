package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/hostkeys"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// hostKey is a key without a value, for the message of an error.
var errPlain = errors.New("anything")

// exitOrder contains an error of every type, in groups. If a run has several errors, the earliest
// group decides on the exit code.
var exitOrder = []struct {
	code int
	errs []error
}{
	{exitInterrupted, []error{errInterrupted}},
	{2, []error{failure.NewUsage("usage"), errDeclined}},
	{3, []error{&nixeval.EvalError{}}},
	{4, []error{&nixeval.BuildError{}}},
	{10, []error{&state.LockedError{}}},
	{1, []error{state.Dir("").Error(unix.ENOSPC)}},
	{5, []error{&machine.BootError{Err: errPlain}, &provider.Error{Err: errPlain}, &changes.PlanError{}}},
	{6, []error{remote.NewUnreachableError("", "", "", errPlain), &hostkeys.UnknownError{},
		&hostkeys.ChangedError{}, &remote.AuthError{About: failure.About{Err: errPlain}}, &remote.AllHostsError{Errs: []error{errPlain}}, &remote.EscalationError{}, fleet.NewNoHostError(nixeval.Node{}, false),
		&fleet.NodeError{Step: event.Connect, Err: errPlain}}},
	{9, []error{rollout.NewClusterUnavailableError(errPlain), inspect.NewUnknownError(errPlain, ""), kubernetes.NewAccessError(errPlain)}},
	{7, []error{&fleet.NodeError{Step: event.Copy, Err: errPlain}, &fleet.NodeError{Step: event.Keys, Err: errPlain}, &closure.Error{About: failure.About{Err: errPlain}}}},
	{8, []error{&fleet.NodeError{Step: event.Activate, Err: errPlain}, &fleet.NodeError{Step: event.Drain, Err: errPlain},
		engine.NewVersionError("", ""), &engine.BlockedError{}, activate.NewWrongBootError("", "", ""), &remote.LostError{About: failure.About{Err: errPlain}},
		activate.NewNotNixOSError(""), node.NewGoneError("a", "b"), &activate.BusyError{}, &activate.LostSightError{About: failure.About{Err: errPlain}}}},
	{9, []error{newCheckError(nil), &check.Error{}, rollout.NewAdjustError(errPlain)}},
	{77, []error{&commandError{code: 77}}},
	{3, []error{&nixeval.NixError{}}},
	{6, []error{&remote.TimeoutError{About: failure.About{Err: context.DeadlineExceeded}}}},
	{1, []error{errPlain, nixeval.ErrNoNix, &remote.RunError{}, state.NewFileError("", fs.ErrInvalid, ""),
		&durable.SizeError{}, &engine.NotReadyError{About: failure.About{Err: errPlain}},
		&activate.FailedError{}, &activate.NotSystemError{}, &activate.UnknownProfileError{}}},
}

// TestExitCodeOfSeveralErrors: the earliest group decides, in whatever way the two errors are
// combined.
func TestExitCodeOfSeveralErrors(t *testing.T) {
	for i, first := range exitOrder {
		for _, a := range first.errs {
			if got := exitCode(fmt.Errorf("more: %w", a)); got != first.code {
				t.Errorf("%T: exit code %d, want %d", a, got, first.code)
			}
			for _, later := range exitOrder[i:] {
				for _, b := range later.errs {
					for _, both := range []error{errors.Join(a, b), errors.Join(b, a), fmt.Errorf("%w: %w", b, a)} {
						if got := exitCode(both); got != first.code {
							t.Errorf("%T with %T: exit code %d, want %d", a, b, got, first.code)
						}
					}
				}
			}
		}
	}
}

// TestExitCodeOfWrappedError: the cause of an error decides if its group is earlier. But if an
// operation made a node unreachable, or if a control plane was only asked about the cluster, an
// unreachable node does not decide.
func TestExitCodeOfWrappedError(t *testing.T) {
	type wrapper struct {
		group int // index in exitOrder
		wrap  func(error) error
		hides bool
	}
	wrappers := []wrapper{
		{6, func(err error) error { return &machine.BootError{Err: err} }, false},
		{6, func(err error) error { return &provider.Error{Err: err} }, false},
		{7, func(err error) error { return remote.NewUnreachableError("", "", "", err) }, false},
		{7, func(err error) error { return &fleet.NodeError{Step: event.Connect, Err: err} }, false},
		{8, func(err error) error { return rollout.NewClusterUnavailableError(err) }, true},
		{8, func(err error) error { return kubernetes.NewAccessError(err) }, true},
		{8, func(err error) error { return failure.WithKind(failure.Cluster, err) }, true},
		{9, func(err error) error { return &fleet.NodeError{Step: event.Copy, Err: err} }, false},
		{9, func(err error) error { return &closure.Error{About: failure.About{Err: err}} }, false},
		{10, func(err error) error { return &fleet.NodeError{Step: event.Activate, Err: err} }, false},
		{10, func(err error) error { return failure.On("", failure.WithKind(failure.Lost, err)) }, true},
		{10, func(err error) error {
			return &fleet.NodeError{Step: event.Activate, Err: &activate.LostSightError{About: failure.About{Err: err}}}
		}, true},
		{11, func(err error) error { return rollout.NewAdjustError(err) }, false},
		{14, func(err error) error { return &remote.TimeoutError{About: failure.About{Err: err}} }, false},
		{15, func(err error) error { return failure.WithHint(err, "") }, false},
	}
	for _, w := range wrappers {
		for i, group := range exitOrder {
			for _, cause := range group.errs {
				want := exitOrder[min(i, w.group)].code
				if w.hides && exitOrder[i].code == 6 {
					want = exitOrder[w.group].code
				}
				outer := w.wrap(cause)
				if got := exitCode(errors.Join(outer)); got != want {
					t.Errorf("%T of %T: exit code %d, want %d", outer, cause, got, want)
				}
			}
		}
	}
}
