package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
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
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// hostKey is a key without a value, for the message of an error.
type hostKey struct{ ssh.PublicKey }

func (hostKey) Type() string    { return "ssh-ed25519" }
func (hostKey) Marshal() []byte { return nil }

var errPlain = errors.New("anything")

// exitOrder contains an error of every type, in groups. If a run has several errors, the earliest
// group decides on the exit code.
var exitOrder = []struct {
	code int
	errs []error
}{
	{exitInterrupted, []error{errInterrupted}},
	{exitUsage, []error{failure.NewUsage("usage"), errDeclined, &selection.SelectError{},
		&stages.NoPredecessorError{}, &state.TrustError{Err: errPlain}, &vault.RefusedError{}}},
	{exitInternal, []error{failure.WithKind(failure.Environment, errPlain)}},
	{exitEvaluation, []error{&nixeval.EvalError{}, &rollout.UnevaluableMembersError{Err: &nixeval.EvalError{}}}},
	{exitBuild, []error{&nixeval.BuildError{}}},
	{exitLocked, []error{&state.LockedError{}}},
	{exitInternal, []error{&state.FolderError{Err: unix.ENOSPC}}},
	{exitProvision, []error{&machine.BootError{Err: errPlain}, &provider.Error{Err: errPlain}, &changes.PlanError{}, &facts.EndpointError{}}},
	{exitUnreachable, []error{&remote.UnreachableError{Err: errPlain}, &hostkeys.UnknownError{Key: hostKey{}},
		&hostkeys.ChangedError{Key: hostKey{}}, &remote.AuthError{Err: errPlain}, &remote.AllHostsError{Errs: []error{errPlain}}, &remote.EscalationError{}, &remote.LoginShellError{}, &fleet.NoHostError{},
		&fleet.NodeError{Step: event.Connect, Err: errPlain}}},
	{exitCheck, []error{&rollout.ClusterUnavailableError{Err: errPlain}, &inspect.UnknownError{Err: errPlain}, kubernetes.NewAccessError(errPlain)}},
	{exitCopy, []error{&fleet.NodeError{Step: event.Copy, Err: errPlain}, &fleet.NodeError{Step: event.Keys, Err: errPlain}, &closure.Error{Err: errPlain}}},
	{exitActivation, []error{&fleet.NodeError{Step: event.Activate, Err: errPlain}, &fleet.NodeError{Step: event.Drain, Err: errPlain},
		&engine.VersionError{}, &engine.BlockedError{}, &activate.RebootError{}, &remote.LostError{Err: errPlain},
		&activate.NotNixOSError{}, &node.GoneError{}, &activate.BusyError{}, &activate.LostSightError{Err: errPlain}}},
	{exitCheck, []error{&checkError{}, &check.Error{}, &rollout.AdjustError{Err: errPlain}}},
	{77, []error{&execError{code: 77}}},
	{exitEvaluation, []error{&nixeval.NixError{}}},
	{exitUnreachable, []error{&remote.TimeoutError{Err: context.DeadlineExceeded}}},
	{exitInternal, []error{errPlain, nixeval.ErrNoNix, &remote.RunError{}, &state.FileError{Err: fs.ErrInvalid},
		&durable.SizeError{}, &engine.NotReadyError{Missing: errPlain}, &api.DrainTimeoutError{},
		&activate.FailedError{}, &activate.NotSystemError{}, &activate.NoStorePathError{}, &activate.UnknownProfileError{}}},
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
		{7, func(err error) error { return &machine.BootError{Err: err} }, false},
		{7, func(err error) error { return &provider.Error{Err: err} }, false},
		{8, func(err error) error { return &remote.UnreachableError{Err: err} }, false},
		{8, func(err error) error { return &fleet.NodeError{Step: event.Connect, Err: err} }, false},
		{9, func(err error) error { return &rollout.ClusterUnavailableError{Err: err} }, true},
		{9, func(err error) error { return kubernetes.NewAccessError(err) }, true},
		{9, func(err error) error { return failure.WithKind(failure.Cluster, err) }, true},
		{10, func(err error) error { return &fleet.NodeError{Step: event.Copy, Err: err} }, false},
		{10, func(err error) error { return &closure.Error{Err: err} }, false},
		{11, func(err error) error { return &fleet.NodeError{Step: event.Activate, Err: err} }, false},
		{11, func(err error) error { return &activate.RebootError{Err: err} }, true},
		{11, func(err error) error {
			return &fleet.NodeError{Step: event.Activate, Err: &activate.LostSightError{Err: err}}
		}, true},
		{12, func(err error) error { return &rollout.AdjustError{Err: err} }, false},
		{15, func(err error) error { return &remote.TimeoutError{Err: err} }, false},
		{16, func(err error) error { return failure.WithHint(err, "") }, false},
	}
	for _, w := range wrappers {
		for i, group := range exitOrder {
			for _, cause := range group.errs {
				want := exitOrder[min(i, w.group)].code
				if w.hides && exitOrder[i].code == exitUnreachable {
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
