// Package enginetest contains [Run], the contract tests that every [engine.Engine] must pass, and [Fake], an engine for tests of other
// packages. The contract tests use members that have work, that block a drain, and whose programs do not work.
package enginetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Cluster is an engine under test, with functions that change the cluster without the engine. At the start
// of a test, the three members are in the hive, ready, and not drained.
type Cluster struct {
	Engine engine.Engine
	Nodes  [3]string // the names of the members
	// BlockDrain changes a node so that every drain of it fails.
	BlockDrain func(node string)
	// Break changes a node so that it is not ready.
	Break func(node string)
	// Reopen returns a second engine value for the same cluster, as a later run of nixbench would create it.
	Reopen func() engine.Engine
}

// Run runs the contract tests. It calls open once for each test, to create a new cluster.
func Run(t *testing.T, open func(t *testing.T) *Cluster) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Members", members},
		{"Drain", drain},
		{"DrainFails", drainFails},
		{"DrainCancelled", drainCancelled},
		{"DrainAll", drainAll},
		{"OtherClient", otherClient},
		{"WaitReady", waitReady},
		{"Uncordon", uncordon},
		{"Remove", remove},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&suite{t, open(t)}) })
	}
}

type suite struct {
	*testing.T
	*Cluster
}

func quiet(_, _ string) {}

// stranger is the name of a node that is neither a member nor in the hive.
const stranger = "stranger"

// want fails the test unless the members of the cluster for which is returns true are exactly the given nodes.
func (s *suite) want(what string, is func(engine.Status) bool, nodes []string) {
	s.Helper()
	all, err := s.Engine.Members(s.Context())
	maps.DeleteFunc(all, func(_ string, status engine.Status) bool { return !is(status) })
	if got := slices.Sorted(maps.Keys(all)); err != nil || !slices.Equal(got, slices.Sorted(slices.Values(nodes))) {
		s.Errorf("%s: %q, want %q; %v", what, got, nodes, err)
	}
}

func (s *suite) wantMembers(nodes ...string) {
	s.Helper()
	s.want("members", func(engine.Status) bool { return true }, nodes)
}

func (s *suite) wantDrained(nodes ...string) {
	s.Helper()
	s.want("drained", func(status engine.Status) bool { return status.Drained }, nodes)
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Error(err)
	}
}

func (s *suite) drain(nodes ...string) {
	s.Helper()
	s.must(s.Engine.Drain(s.Context(), nodes, engine.DrainOptions{}, quiet))
}

func (s *suite) uncordon(node string) {
	s.Helper()
	s.must(s.Engine.Uncordon(s.Context(), node))
}

func (s *suite) waitReady(node string) {
	s.Helper()
	s.must(s.Engine.WaitReady(s.Context(), node, quiet))
}

func members(s *suite) {
	s.wantMembers(s.Nodes[:]...)
	s.wantDrained()
	s.want("ready", func(status engine.Status) bool { return status.Ready }, s.Nodes[:])
}

// drain tests that Drain marks all nodes before its first report, so that the work of one drained node is not moved to another one.
// It ignores a node that is no member, as the other methods do, and can be repeated.
func drain(s *suite) {
	s.drain()
	s.wantDrained()
	reports := 0
	s.must(s.Engine.Drain(s.Context(), []string{stranger, s.Nodes[1], s.Nodes[2]}, engine.DrainOptions{}, func(_, _ string) {
		reports++
		s.wantDrained(s.Nodes[1:]...)
	}))
	if reports == 0 {
		s.Error("no report")
	}
	s.drain(s.Nodes[1]) // again
	s.uncordon(stranger)
	s.waitReady(stranger)
	s.wantDrained(s.Nodes[1:]...)
	s.wantMembers(s.Nodes[:]...)
}

// drainFails tests that a drain that fails leaves no node marked as drained, with and without the option Removal.
func drainFails(s *suite) {
	s.BlockDrain(s.Nodes[2])
	for _, o := range []engine.DrainOptions{{}, {Removal: true}} {
		err := s.Engine.Drain(s.Context(), s.Nodes[1:], o, quiet)
		var failed *engine.DrainError
		var blocked *engine.BlockedError
		if !(errors.As(err, &failed) && failed.Node == s.Nodes[2]) && !(errors.As(err, &blocked) && blocked.Nodes[s.Nodes[2]] != nil) {
			s.Errorf("got %v, want the failed drain of %s", err, s.Nodes[2])
		}
		s.wantDrained()
		s.wantMembers(s.Nodes[:]...)
	}
	s.drain(s.Nodes[1])
	s.wantDrained(s.Nodes[1])
}

func drainCancelled(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := s.Engine.Drain(ctx, s.Nodes[1:], engine.DrainOptions{}, quiet); err == nil {
		s.Error("a cancelled drain succeeded")
	}
	s.wantDrained()
}

// drainAll tests the drain of all members with one call, as it happens before all nodes change to another engine. The members
// stay registered, so that they are members again when their nodes come back. An engine need not mark members that have no work,
// such as controllers.
func drainAll(s *suite) {
	s.drain(s.Nodes[:]...)
	s.wantMembers(s.Nodes[:]...)
	all, _ := s.Engine.Members(s.Context())
	if !all[s.Nodes[1]].Drained || !all[s.Nodes[2]].Drained {
		s.Errorf("not all are drained: %+v", all)
	}
	for _, node := range s.Nodes {
		s.waitReady(node)
		s.uncordon(node)
	}
	s.wantDrained()
}

// otherClient tests that the marks of drains are in the cluster: a later run of nixbench uncordons members that an earlier run
// has drained. It also tests that engine values are comparable.
func otherClient(s *suite) {
	s.drain(s.Nodes[1:]...)
	other := s.Reopen()
	if clients := map[engine.Engine]bool{s.Engine: true, other: true}; len(clients) != 2 {
		s.Error("both clients are equal")
	}
	s.Engine = other
	s.wantDrained(s.Nodes[1:]...)
	for _, node := range s.Nodes[1:] {
		s.uncordon(node)
	}
	s.wantDrained()
}

// waitReady tests that a wait for a member leaves it drained. If the member is broken, the wait fails and reports the member.
func waitReady(s *suite) {
	s.drain(s.Nodes[1:]...)
	for _, node := range s.Nodes {
		s.waitReady(node)
	}
	s.Break(s.Nodes[1])
	ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	reported := ""
	if err := s.Engine.WaitReady(ctx, s.Nodes[1], func(node, _ string) { reported = node }); err == nil || reported != s.Nodes[1] {
		s.Errorf("a broken member is ready: %v; reported for %q", err, reported)
	}
	s.waitReady(s.Nodes[2])
	s.wantDrained(s.Nodes[1:]...)
}

// uncordon tests that Uncordon can be repeated, and does not wait until the member works.
func uncordon(s *suite) {
	s.drain(s.Nodes[1:]...)
	for range 2 {
		s.uncordon(s.Nodes[1])
		s.wantDrained(s.Nodes[2])
	}
	s.Break(s.Nodes[2])
	began := time.Now()
	s.uncordon(s.Nodes[2])
	if took := time.Since(began); took > 10*time.Second {
		s.Errorf("after %v", took)
	}
	s.wantDrained()
}

// remove tests that members are drained, and then removed one by one.
func remove(s *suite) {
	s.must(s.Engine.Drain(s.Context(), append([]string{stranger}, s.Nodes[1:]...), engine.DrainOptions{Removal: true}, quiet))
	s.wantMembers(s.Nodes[:]...)
	s.wantDrained(s.Nodes[1:]...)
	for _, node := range []string{s.Nodes[1], stranger} {
		s.must(s.Engine.RemoveMember(s.Context(), node))
		s.wantMembers(s.Nodes[0], s.Nodes[2])
	}
	s.uncordon(s.Nodes[1])
}
