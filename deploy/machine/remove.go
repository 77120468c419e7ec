package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

type destroyer struct {
	*Manager
	Store    *state.Store
	Record   *runs.Recorder
	parallel int
	cluster  provider.Cluster
	hosts    hypervisors
	outcome  state.Outcome // the outcome that is recorded for a machine whose removal succeeds
}

func (m *Manager) Destroy(ctx context.Context, plan *DestroyPlan, store *state.Store, record *runs.Recorder, parallel int) ([]state.NodeResult, error) {
	w := &destroyer{Manager: m, Store: store, Record: record, parallel: parallel, cluster: clusterIdentity(m.Hive, store.State()), hosts: plan.hosts, outcome: Removed}
	if plan.abandoned != "" {
		w.outcome = Forgotten
	}
	results, err := w.executeRemovals(ctx, plan.Removals)
	switch {
	case err != nil:
	case plan.abandoned != "":
		err = w.Store.Update(func(s *state.State) error { delete(s.Cluster.Hypervisors, plan.abandoned); return nil })
		if err == nil { // without the abandoned machines
			err = w.WriteFacts(w.Store.State())
		}
	default:
		err = w.removeUnused(ctx)
	}
	return results, err
}

// executeRemovals removes machines and their records, several nodes at once, and returns a result for each node. The
// error joins the errors of the nodes.
func (w *destroyer) executeRemovals(ctx context.Context, list []changes.Change) ([]state.NodeResult, error) {
	if len(list) == 0 {
		return []state.NodeResult{}, nil
	}
	removals := map[string][]changes.Change{} // node → its removals; a node with machines on two hypervisors has two
	for _, machine := range list {
		removals[machine.Node] = append(removals[machine.Node], machine)
	}
	var nodes []nixeval.Node
	for _, node := range removedNodes(list) {
		nodes = append(nodes, nixeval.Node{Name: node, Unit: node, Role: removals[node][0].Role})
	}
	return steps{w.Send, w.Record, event.Remove, event.Remove, w.parallel}.run(ctx, [][]nixeval.Node{nodes}, func(ctx context.Context, n nixeval.Node) (state.Outcome, error) {
		return w.outcome, w.removeMachine(ctx, n.Name, removals[n.Name])
	})
}

func (w *destroyer) removeMachine(ctx context.Context, node string, removals []changes.Change) error {
	if err := w.Store.Begin(state.Intent{Run: w.Record.ID(), Node: node, Step: state.RemoveMachine, Since: time.Now().UTC()}); err != nil {
		return &BootError{Node: node, Err: err}
	}
	for _, p := range removals {
		host := w.hosts[p.Hypervisor]
		if host == nil {
			continue // nothing to remove: the machine has no hypervisor, or its hypervisor is no longer recorded
		}
		if err := host.Remove(ctx, w.cluster, node); err != nil {
			return &BootError{Node: node, Err: wrapHypervisorError(err, p.Hypervisor, "remove")}
		}
	}
	return w.dropNodeRecord(node)
}

func (w *destroyer) dropNodeRecord(node string) error {
	// Remove the host key first, because a later run removes only the keys of recorded nodes.
	if err := keys.RemoveHostKey(w.Dir, node); err != nil {
		return &BootError{Node: node, Err: err}
	}
	return w.Store.Update(func(s *state.State) error { s.Removed(node); return nil })
}

// removeUnused removes the networks and images that no machine uses. When no machine is left, it also removes the keys,
// the secrets and the facts, and last the cluster's id. If a network or an image cannot be removed, removeUnused
// returns an error and keeps the id, because networks and images are found by the id that they are marked with.
func (w *destroyer) removeUnused(ctx context.Context) error {
	recorded := w.Store.State()
	err := w.cleanHypervisors(ctx, len(recorded.Machines) == 0)
	if len(recorded.Machines) > 0 {
		if err != nil {
			return err
		}
		return w.WriteFacts(recorded)
	}
	if err := errors.Join(w.removeLocalFiles(recorded), err); err != nil {
		return err
	}
	return w.Store.Update(func(s *state.State) error { s.Cluster = nil; return nil })
}

func (w *destroyer) cleanHypervisors(ctx context.Context, last bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) { // clean one hypervisor after the other, because two hypervisors may share a network and a pool
		wait := w.Send.Wait(event.Event{Phase: event.Remove, Text: fmt.Sprintf("hypervisor %s: the removal of unused networks and images", name)})
		err := w.hosts[name].Clean(ctx, w.cluster, last)
		wait.End()
		errs = append(errs, wrapHypervisorError(err, name, "clean up"))
	}
	return errors.Join(errs...)
}

// removeLocalFiles removes local files that only machines of this cluster need: SSH keys, facts (runtime.json), garbage
// collector roots of images, and the secrets unless other nodes need the secrets. It is called when no machine is left.
func (w *destroyer) removeLocalFiles(recorded *state.State) error {
	roots, _ := filepath.Glob(w.Dir.Root("image-*"))
	for _, root := range roots {
		_ = os.Remove(root) // an error is ignored: the garbage collector's root is only a link to an image that can be built again
	}
	if !w.hasUnmanagedNodes(recorded) {
		// Remove the secrets, because a cluster that is created later must have other secrets.
		if err := keys.RemoveSecrets(w.Dir, w.AccessFiles...); err != nil {
			return err
		}
	}
	return errors.Join(w.Dir.RemoveFacts(), keys.RemoveAll(w.Dir))
}

// hasUnmanagedNodes reports whether there are nodes whose machines nixbench does not manage: nodes in the hive, or
// deployed nodes in the state. Such nodes may be members of the cluster and need its secrets.
func (w *destroyer) hasUnmanagedNodes(recorded *state.State) bool {
	return len(recorded.Nodes) > 0 || slices.ContainsFunc(w.Hive.Nodes, func(n nixeval.Node) bool { return !Boots(w.Hive, n) })
}
