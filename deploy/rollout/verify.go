package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	outOfService := slices.DeleteFunc(nixeval.SortedNames(cluster.Members), func(node string) bool { // by an administrator or the engine, before the run
		return !cluster.Members[node].Cordoned || cluster.Members[node].Drained
	})
	conditions := inspect.EngineConditions(cluster.engines, nodes, parallel, engine.CheckOptions{Except: outOfService, Away: cluster.observer.Away}, repair{cluster.reporter, all, map[string]bool{}}.look)
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

// adjustMembers changes settings of members, such as labels, to the values in the hive.
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

// adjust changes the settings of members to those of the hive, unless dry is set, and returns the differences, by node.
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

// AdjustmentLines returns a line for each different list of changes, with the names of all nodes for which the list is the same.
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
	for i, text := range texts {
		texts[i] = strings.Join(nodes[text], ", ") + ": " + text
	}
	return texts
}

// repair solves problems that waiting does not solve and that keep the cluster from working at the end of a run, such as a systemd
// unit of the engine that is down.
type repair struct {
	reporter
	nodes   []string        // names of the nodes of the run that have an engine in the hive
	started map[string]bool // node and systemd unit → whether it was started
}

// look returns a function that inspects the nodes of the run. It starts each systemd unit of the engine that is down, once. If all
// these units work, it uncordons members that nixbench has drained: if a controller of the engine was killed, the end of a drain
// may have been lost.
func (r repair) look(e engine.Engine) check.Look {
	return func(ctx context.Context) (string, bool) {
		faults := engine.LookAll(ctx, e, r.nodes)
		r.startUnits(ctx, e, faults)
		text, lasts := engine.DescribeFaults(e, r.nodes, faults)
		if !lasts {
			r.uncordon(ctx, e)
		}
		return text, lasts
	}
}

// startUnits starts the systemd units that are down on nodes of the run. It returns true if it has started one of these units.
func (r repair) startUnits(ctx context.Context, e engine.Inspector, faults []engine.NodeFaults) bool {
	started := false
	for _, n := range faults {
		for _, f := range n.Faults {
			id := n.Node + " " + f.Unit
			if !f.Down || r.started[id] || !slices.Contains(r.nodes, n.Node) {
				continue
			}
			r.started[id] = true
			r.send.WarnOn(n.Node, "%s: %v; nixbench starts it", n.Node, f)
			err := e.ControlUnit(ctx, n.Node, "start", f.Unit)
			if started = started || err == nil; err != nil {
				r.send.WarnOn(n.Node, "%v", failure.On(n.Node, err))
			}
		}
	}
	return started
}

// restartTime is the time limit until an engine answers after nixbench has started its systemd units.
const restartTime = time.Minute

// askMembers asks an engine for its members. If the engine does not answer, askMembers starts the engine's systemd units that are
// down on the nodes in start, and asks again. The error says what is wrong on these nodes and on the controllers.
func (r reporter) askMembers(ctx context.Context, e engine.Engine, start []string) (map[string]engine.Status, error) {
	members, err := e.Members(ctx)
	if err == nil || ctx.Err() != nil {
		return members, err
	}
	faults := engine.LookAll(ctx, e, start)
	if text, _ := engine.DescribeFaults(e, start, faults); text != "" {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	if !(repair{r, start, map[string]bool{}}).startUnits(ctx, e, faults) {
		return nil, err
	}
	for end := time.Now().Add(restartTime); err != nil && time.Now().Before(end) && ctx.Err() == nil; {
		members, err = e.Members(ctx)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return members, err
}

// uncordonTime is the time limit for one attempt to uncordon members while nixbench waits for the cluster to be healthy. The
// attempt is repeated.
const uncordonTime = 5 * time.Second

func (r repair) uncordon(ctx context.Context, e engine.Engine) {
	ctx, cancel := context.WithTimeout(ctx, uncordonTime)
	defer cancel()
	members, _ := e.Members(ctx) // an error is ignored: the conditions report an engine that does not answer
	for _, node := range nixeval.SortedNames(members) {
		if members[node].Drained && slices.Contains(r.nodes, node) && e.Uncordon(ctx, node) == nil {
			r.send.WarnOn(node, "%s: it was still drained by nixbench, and takes work again", node)
		}
	}
}
