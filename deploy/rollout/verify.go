package rollout

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/nixeval"
)

// failedUnitTimeout is how long the end of a run waits until no systemd unit is failed any more. It is short, because a failed
// systemd unit rarely recovers.
const failedUnitTimeout = 20 * time.Second

// Verify waits until the conditions of the engines and the conditions in more and health are fulfilled, for at most timeout; if
// timeout is 0, it does not wait. Without engines, it waits only for the conditions in health. It adjusts settings of existing members
// (such as labels) before the wait, because other nodes may depend on the settings. It adjusts new members after the wait, when they
// have joined.
func (cluster Cluster) Verify(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, parallel int, more, health []check.Condition, timeout time.Duration) error {
	if len(cluster.engines) == 0 {
		return cluster.await(ctx, health, timeout)
	}
	var members, newMembers, all []string
	unreachable := !cluster.Running()
	for _, n := range nodes {
		hasEngine, m := hive.Unit(n.Unit).Deployment.Engine != nil, cluster.Members[n.Name]
		unreachable = unreachable || m.Unreachable
		if hasEngine {
			all = append(all, n.Name)
		}
		switch {
		case m.Engine != nil && !m.Recreated && !m.Unreachable:
			members = append(members, n.Name)
		case hasEngine:
			newMembers = append(newMembers, n.Name)
		}
	}
	err := cluster.adjustMembers(ctx, members)
	switch {
	case timeout == 0 && (err != nil || unreachable): // with timeout 0, return without waiting for an engine that does not answer
		return err
	case timeout == 0:
		return cluster.adjustMembers(ctx, newMembers)
	case err != nil: // ignore the error for now: the API may be restarting, and the existing members are adjusted again after the wait
		newMembers = append(members, newMembers...)
	}
	conditions := inspect.EngineConditions(cluster.engines, nodes, parallel, engine.CheckOptions{Except: cluster.outOfService(), Away: cluster.observer.Away}, cluster.newRepair(all).look)
	for _, c := range more {
		c.Within = failedUnitTimeout
		conditions = append(conditions, c)
	}
	if err := cluster.await(ctx, append(conditions, health...), timeout); err != nil {
		return err
	}
	return cluster.adjustMembers(ctx, newMembers)
}

// await waits until the conditions are fulfilled, for at most timeout. If there are none or timeout is 0, it does not wait.
func (cluster Cluster) await(ctx context.Context, conditions []check.Condition, timeout time.Duration) error {
	if len(conditions) == 0 || timeout == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := check.Await(ctx, conditions, cluster.send)
	return err
}

// NewAdjustError returns the error that settings of members, such as labels, could not be changed to those of the hive, for the
// reason err. These settings are not part of the members' systems, and the systems are deployed.
func NewAdjustError(err error) error {
	return failure.WithHint(failure.WithKind(failure.Check, err), "run nixbench apply again; it changes only these settings")
}

// adjustMembers changes settings of members, such as labels, to the values in the hive. These settings are not part of the
// members' systems.
func (cluster Cluster) adjustMembers(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	wait := cluster.send.Wait(event.Event{Phase: event.Deploy, Text: "the cluster to apply the hive's settings of its members"})
	changes, err := adjust(ctx, cluster.engines, nodes, false)
	wait.End()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, line := range AdjustmentLines(changes) {
		cluster.send.Note("%s", line)
	}
	if err != nil {
		return NewAdjustError(err)
	}
	return nil
}

// PreviewAdjustments returns the changes that adjustMembers would make, by node name.
func (cluster Cluster) PreviewAdjustments(ctx context.Context, nodes []string) map[string][]string {
	changes, err := adjust(ctx, cluster.engines, nodes, true)
	if err != nil {
		cluster.send.Warn("%v", err)
	}
	return changes
}

// adjust changes the settings of members to those of the hive, and returns the differences, by node name. With dry, it only
// returns them.
func adjust(ctx context.Context, engines []engine.Engine, nodes []string, dry bool) (map[string][]string, error) {
	all := map[string][]string{}
	var errs []error
	for _, e := range engines {
		if adjuster, ok := e.(engine.Adjuster); ok {
			changes, err := adjuster.Adjust(ctx, nodes, dry)
			maps.Copy(all, changes) // a node is a member of one engine
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// AdjustmentLines returns one line for each different list of changes. The line begins with the names of all nodes for which the
// list is the same.
func AdjustmentLines(changes map[string][]string) []string {
	nodes := map[string][]string{}
	var texts []string
	for _, node := range nixeval.SortedNames(changes) {
		text := strings.Join(changes[node], ", ")
		if nodes[text] == nil {
			texts = append(texts, text)
		}
		nodes[text] = append(nodes[text], node)
	}
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = strings.Join(nodes[text], ", ") + ": " + text
	}
	return lines
}
