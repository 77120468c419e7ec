package rollout

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// OrderWaves splits nodes into waves, which change one after the other:
//
//   - The first wave has the nodes on which nothing restarts. In a running cluster it also has the nodes that
//     are about to join, and, if share is all, the nodes without an engine.
//   - Then come the members, those with a lower order in the hive first. Of the members with the same order, each
//     one that may only be changed one at a time has a wave of its own, before the waves of the others, which have
//     at most share of these nodes.
//   - The nodes without an engine are in the waves of the last members.
func (cluster Cluster) OrderWaves(nodes []nixeval.Node, isNoop func(node string) bool, share selection.Share) [][]nixeval.Node {
	running := len(cluster.members) > 0
	var first, later []nixeval.Node
	for _, n := range nodes {
		m, isMember := cluster.members[n.Name]
		_, isDesired := cluster.desired[n.Name]
		switch {
		case isNoop(n.Name), running && isDesired && (!isMember || m.recreated), running && !isMember && share.All():
			first = append(first, n)
		default:
			later = append(later, n)
		}
	}
	if share.All() && running {
		share = selection.One
	}
	var out [][]nixeval.Node
	for _, group := range cluster.groupByOrder(later) {
		var others []nixeval.Node
		for _, n := range group {
			if wave := []nixeval.Node{n}; cluster.IsOneByOne(wave) {
				out = append(out, wave)
			} else {
				others = append(others, n)
			}
		}
		out = append(out, selection.Waves(others, share)...)
	}
	if len(out) == 0 || running {
		return append([][]nixeval.Node{first}, out...)
	}
	out[0] = append(first, out[0]...)
	return out
}

// groupByOrder splits nodes into groups of members with the same order, the lowest order first. Nodes that are not
// members are in the last group.
func (cluster Cluster) groupByOrder(nodes []nixeval.Node) [][]nixeval.Node {
	last := 0
	for _, n := range nodes {
		last = max(last, cluster.desired[n.Name].Order)
	}
	groups := map[int][]nixeval.Node{}
	for _, n := range nodes {
		order := last
		if m, isDesired := cluster.desired[n.Name]; isDesired && cluster.IsMember(n.Name) {
			order = m.Order
		}
		groups[order] = append(groups[order], n)
	}
	var out [][]nixeval.Node
	for _, order := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[order])
	}
	return out
}

// IsOneByOne reports whether a wave is a single member that may only be changed one at a time.
func (cluster Cluster) IsOneByOne(wave []nixeval.Node) bool {
	return len(wave) == 1 && cluster.members[wave[0].Name].OneByOne
}

// EachWave calls [fleet.Each] for one wave after the other. After a wave in which a node failed, it skips all
// later nodes: their error is a [*SkippedError]. After each wave without a failure, it calls between with the
// index of the wave.
func EachWave[T any](ctx context.Context, waves [][]nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error), between func(wave int)) []fleet.Outcome[T] {
	var out []fleet.Outcome[T]
	stop := false
	for i, wave := range waves {
		if stop {
			for _, n := range wave {
				out = append(out, fleet.Outcome[T]{Node: n, Err: &SkippedError{Node: n.Name}})
			}
			continue
		}
		done := fleet.Each(ctx, wave, parallel, f)
		out = append(out, done...)
		if stop = len(fleet.Errors(done)) > 0; !stop {
			between(i)
		}
	}
	return out
}

// SkippedError is the error of a node that was not changed because a node of an earlier wave failed.
type SkippedError struct{ Node string }

func (e *SkippedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *SkippedError) OnNode() (node, text string) {
	return e.Node, "skipped: a node of an earlier wave failed"
}

// WasSkipped reports whether the node was skipped because a node of an earlier wave failed.
func WasSkipped(err error) bool {
	var skipped *SkippedError
	return errors.As(err, &skipped)
}
