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
	down := remote.NewUnreachableError("m1", "m1:22", "", errors.New("i/o timeout"))
	lost := &fleet.NodeError{Node: "m1", Step: event.Activate, Err: &activate.LostSightError{About: failure.About{Node: "m1", Err: down}}}
	for _, test := range []struct {
		err  error
		want int
	}{
		{down, 6},
		{lost, 8},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: failure.On("m1", failure.WithKind(failure.Lost, down))}, 8},
		{errors.Join(lost, down), 6},
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
	silent := &remote.TimeoutError{About: failure.About{Node: "m1", Text: "inspect on m1:22", Advice: "check it", Err: context.DeadlineExceeded}}
	lost := &remote.LostError{About: failure.About{Node: "m1", Text: "lost the connection to m1:22: EOF", Err: errors.New("EOF")}}
	for _, test := range []struct {
		err  error
		want int
	}{
		{silent, 6},
		{errors.Join(fmt.Errorf("look: %w", silent)), 6},
		{&fleet.NodeError{Node: "m1", Step: event.Connect, Err: lost}, 6},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: lost}, 8},
		{&fleet.NodeError{Node: "m1", Step: event.Copy, Err: silent}, 7},
		{&fleet.NodeError{Node: "m1", Step: event.Activate, Err: silent}, 8},
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
	alone, down := rollout.NewClusterUnavailableError(silent), remote.NewUnreachableError("cp-1", "cp-1:22", "", errors.New("i/o timeout"))
	lost := &remote.LostError{About: failure.About{Node: "cp-1", Text: "lost the connection to cp-1:22: EOF", Err: errors.New("EOF")}}
	drain := &fleet.NodeError{Node: "w-3", Step: event.Drain, Err: failure.On("w-3", fmt.Errorf("drain: %w", errors.Unwrap(silent)))}
	access := kubernetes.NewAccessError(errors.Join(errors.New("cp-1: it has none"), errors.New("cp-2: it has none")))
	for _, test := range []struct {
		err  error
		code int
		want []ui.Problem
	}{
		{alone, 9, []ui.Problem{{Message: "no node can be removed from the cluster: kubernetes: " + both, Hint: failure.Hint(alone)}}},
		{rollout.NewClusterUnavailableError(errors.Join(down)), 9, []ui.Problem{{Message: "no node can be removed from the cluster: " + down.Error(), Hint: failure.Hint(alone)}}},
		{drain, 8, []ui.Problem{{Message: "w-3: drain: " + both}}},
		{errors.Join(down, alone), 6, []ui.Problem{{Message: down.Error()}, {Message: alone.Error(), Hint: failure.Hint(alone)}}},
		{errors.Join(drain, alone), 9, []ui.Problem{{Message: drain.Error()}, {Message: alone.Error(), Hint: failure.Hint(alone)}}},
		{access, 9, []ui.Problem{{Message: "no control plane has an administrator's kubeconfig yet: cp-1: it has none\ncp-2: it has none", Hint: failure.Hint(access)}}},
		{kubernetes.NewAccessError(down), 9, []ui.Problem{{Message: "no control plane has an administrator's kubeconfig yet: " + down.Error(), Hint: failure.Hint(access)}}},
		{failure.WithHint(failure.WithKind(failure.Cluster, lost), "ask again"), 9, []ui.Problem{{Message: lost.Error(), Hint: "ask again"}}},
		{failure.WithHint(failure.WithKind(failure.Cluster, silent), "ask again"), 9, []ui.Problem{{Message: silent.Error(), Hint: "ask again"}}},
		// A join by fmt has a message of its own.
		{fmt.Errorf("%w: %w", errors.New("no locks"), errors.New("not supported")), 1, []ui.Problem{{Message: "no locks: not supported"}}},
	} {
		if code := exitCode(test.err); code != test.code {
			t.Errorf("%v: exit code %d, want %d", test.err, code, test.code)
		}
		if diff := cmp.Diff(test.want, splitProblems(test.err)); diff != "" {
			t.Errorf("%s:\n%s", strings.Split(test.err.Error(), "\n")[0], diff)
		}
	}
}
