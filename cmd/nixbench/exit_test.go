package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/rollout"
)

// If a switch makes a node unreachable, the exit code is that of a failed switch, whatever the last
// connection error was.
func TestSwitchThatCutsNodeOff(t *testing.T) {
	down := &remote.UnreachableError{Node: "m1", Addr: "m1:22", Err: errors.New("i/o timeout")}
	lost := &fleet.NodeError{Node: "m1", Step: event.Activate, Err: &activate.LostSightError{Node: "m1", Err: down}}
	for _, test := range []struct {
		err  error
		want int
	}{
		{down, exitUnreachable},
		{lost, exitActivation},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: &activate.RebootError{Node: "m1", Err: down}}, exitActivation},
		{errors.Join(lost, down), exitUnreachable},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
}

// A node that accepts the connection and does not answer is not an internal error. A node that is
// lost during its inspection is not a failed switch. If the step has an exit code of its own, that
// code is used.
func TestUnresponsiveNode(t *testing.T) {
	silent := &remote.TimeoutError{Node: "m1", Addr: "m1:22", Command: "inspect", Err: context.DeadlineExceeded}
	lost := &remote.LostError{Node: "m1", Addr: "m1:22", Err: errors.New("EOF")}
	for _, test := range []struct {
		err  error
		want int
	}{
		{silent, exitUnreachable},
		{errors.Join(fmt.Errorf("look: %w", silent)), exitUnreachable},
		{&fleet.NodeError{Node: "m1", Step: event.Connect, Err: lost}, exitUnreachable},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: lost}, exitActivation},
		{&fleet.NodeError{Node: "m1", Step: event.Copy, Err: silent}, exitCopy},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: silent}, exitActivation},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
	if p := splitProblems(silent); len(p) != 1 || p[0].Hint == "" || !strings.HasPrefix(p[0].Message, "m1: inspect on m1:22") {
		t.Errorf("%+v", p)
	}
}

// The output of kubectl on several control planes is part of one error, so it is not split into
// several.
func TestErrorsOfEngines(t *testing.T) {
	silent := fmt.Errorf("kubernetes: %w", errors.Join(errors.New("cp-1: kubectl: exit status 1"), errors.New("cp-2: kubectl: timed out")))
	const both = "cp-1: kubectl: exit status 1\ncp-2: kubectl: timed out"
	alone, down := &rollout.ClusterUnavailableError{Err: silent}, &remote.UnreachableError{Node: "cp-1", Addr: "cp-1:22", Err: errors.New("i/o timeout")}
	lost := &remote.LostError{Node: "cp-1", Addr: "cp-1:22", Err: errors.New("EOF")}
	drain := &fleet.NodeError{Node: "w-3", Step: event.Drain, Err: failure.On("w-3", fmt.Errorf("drain: %w", errors.Unwrap(silent)))}
	access := kubernetes.NewAccessError(errors.Join(errors.New("cp-1: it has none"), errors.New("cp-2: it has none")))
	for _, test := range []struct {
		err  error
		code int
		want []ui.Problem
	}{
		{alone, exitCheck, []ui.Problem{{Message: "no node can be removed from the cluster: kubernetes: " + both, Hint: alone.Hint()}}},
		{&rollout.ClusterUnavailableError{Err: errors.Join(down)}, exitCheck, []ui.Problem{{Message: "no node can be removed from the cluster: " + down.Error(), Hint: alone.Hint()}}},
		{drain, exitActivation, []ui.Problem{{Message: "w-3: drain: " + both}}},
		{errors.Join(down, alone), exitUnreachable, []ui.Problem{{Message: down.Error()}, {Message: alone.Error(), Hint: alone.Hint()}}},
		{errors.Join(drain, alone), exitCheck, []ui.Problem{{Message: drain.Error()}, {Message: alone.Error(), Hint: alone.Hint()}}},
		{access, exitCheck, []ui.Problem{{Message: "no control plane has an administrator's kubeconfig yet: cp-1: it has none\ncp-2: it has none", Hint: failure.Hint(access)}}},
		{kubernetes.NewAccessError(down), exitCheck, []ui.Problem{{Message: "no control plane has an administrator's kubeconfig yet: " + down.Error(), Hint: failure.Hint(access)}}},
		{failure.WithHint(failure.WithKind(failure.Cluster, lost), "ask again"), exitCheck, []ui.Problem{{Message: lost.Error(), Hint: "ask again"}}},
		{failure.WithHint(failure.WithKind(failure.Cluster, silent), "ask again"), exitCheck, []ui.Problem{{Message: silent.Error(), Hint: "ask again"}}},
		// A join by fmt has a message of its own.
		{fmt.Errorf("%w: %w", errors.New("no locks"), errors.New("not supported")), exitInternal, []ui.Problem{{Message: "no locks: not supported"}}},
	} {
		if code := exitCode(test.err); code != test.code {
			t.Errorf("%v: exit code %d, want %d", test.err, code, test.code)
		}
		if diff := cmp.Diff(test.want, splitProblems(test.err)); diff != "" {
			t.Errorf("%s:\n%s", strings.Split(test.err.Error(), "\n")[0], diff)
		}
	}
}
