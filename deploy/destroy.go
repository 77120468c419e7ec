package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Removed is the outcome of removing a machine.
const Removed state.Outcome = "removed"

// removal is a machine that a destroy plan removes.
type removal struct {
	Node         string          `json:"node"`
	Role         string          `json:"role,omitempty"`
	Hypervisor   string          `json:"hypervisor"`
	State        provision.State `json:"state,omitempty"` // empty: no hypervisor has anything of it
	neverCreated bool            // it was planned, and nothing of it was created
	unrecorded   bool
	duplicate    bool   // a second machine of the node by mistake: the node stays with its other machine
	note         string // description of a machine that is only removed from the state
}

// DestroyPlan is all that a destroy removes.
type DestroyPlan struct {
	Removals     []removal
	WholeCluster bool     // no machine is left afterwards, so that the network and images are removed, too
	Remaining    []string // messages about what is not removed
	neverCreated []string // nodes whose machine was planned and never created: only its record is removed
	hosts        hypervisors
	abandoned    string // the hypervisor that is removed from the state with its machines
}

func (d removal) String() string {
	text := d.Node
	if d.Hypervisor != "" {
		text += " on " + d.Hypervisor
	}
	switch {
	case d.note != "":
		text += ": " + d.note
	case d.unrecorded:
		text += ": left by an interrupted run"
	case d.State == "":
		text += ": it no longer exists"
	case d.State != provision.Running:
		text += ": " + string(d.State)
	}
	return text
}

// removedNodes returns the nodes whose last machine is removed, each once.
func removedNodes(list []removal) []string {
	var out []string
	for _, machine := range list {
		if !machine.duplicate && !slices.Contains(out, machine.Node) {
			out = append(out, machine.Node)
		}
	}
	return out
}

// Close closes the connections to the hypervisors.
func (d *DestroyPlan) Close() { d.hosts.close() }

// PlanDestroy finds all machines of the cluster, independent of the hive: the recorded ones and those that
// carry nixbench's metadata. selectNodes selects some of them; nil selects all.
func (m *Machines) PlanDestroy(ctx context.Context, recorded *state.State, selectNodes func([]nixeval.Node) ([]nixeval.Node, error)) (*DestroyPlan, error) {
	if recorded.Cluster == nil {
		return &DestroyPlan{}, nil
	}
	net, err := m.clusterNetwork(recorded, false)
	if err != nil {
		return nil, err
	}
	d := &DestroyPlan{}
	if d.hosts, err = connectHypervisors(ctx, m.Open, recorded.Cluster.Hypervisors, m.Send); err != nil {
		d.Close()
		return nil, addAbandonHint(err, recorded)
	}
	sites, err := d.hosts.survey(ctx, m.clusterIdentity(recorded), net, m.Send)
	if err != nil {
		d.Close()
		return nil, addAbandonHint(err, recorded)
	}
	seen := map[string]bool{}
	var all []removal
	for _, name := range sortedKeys(sites) {
		for _, c := range sites[name].Copies {
			d.Remaining = append(d.Remaining, provision.CopyText(name, c))
		}
		for _, f := range sites[name].Machines {
			_, remembered := recorded.Machines[f.Node]
			all = append(all, removal{Node: f.Node, Role: f.Role, Hypervisor: name, State: f.State, unrecorded: !remembered})
			seen[f.Node] = true
		}
	}
	for _, node := range sortedKeys(recorded.Machines) {
		if s := recorded.Machines[node]; !seen[node] {
			all = append(all, removal{Node: node, Role: s.Role, Hypervisor: s.Hypervisor, neverCreated: s.Created == nil})
		}
	}
	sortByNode(all)
	list := all
	if selectNodes != nil {
		selected, err := selectNodes(m.asNodes(all))
		if err != nil {
			d.Close()
			return nil, err
		}
		list = slices.DeleteFunc(slices.Clone(all), func(machine removal) bool {
			return !slices.ContainsFunc(selected, func(n nixeval.Node) bool { return n.Name == machine.Node })
		})
	}
	d.WholeCluster = len(list) == len(all)
	for _, machine := range list {
		if machine.neverCreated {
			d.neverCreated = append(d.neverCreated, machine.Node)
			d.Remaining = append(d.Remaining, machine.Node+": it was never created; its record is removed")
		} else {
			d.Removals = append(d.Removals, machine)
		}
	}
	return d, nil
}

func sortByNode(all []removal) {
	slices.SortStableFunc(all, func(a, b removal) int { return nixeval.CompareNatural(a.Node, b.Node) })
}

// asNodes returns the machines as nodes that can be selected. Nodes that the hive still has keep their tags.
func (m *Machines) asNodes(all []removal) []nixeval.Node {
	var out []nixeval.Node
	for _, machine := range all {
		n := nixeval.Node{Name: machine.Node, Unit: machine.Node, Role: machine.Role, Tags: []string{}}
		for _, h := range m.Hive.Nodes {
			if h.Name == machine.Node {
				n = h
			}
		}
		if !slices.ContainsFunc(out, func(o nixeval.Node) bool { return o.Name == n.Name }) {
			out = append(out, n)
		}
	}
	return out
}

// DestroyOptions are the options of Destroy.
type DestroyOptions struct {
	Parallel     int
	WithoutDrain bool // nodes of a running cluster are removed without a drain
	Drain        engine.DrainOptions
}

// Destroy removes the machines of a plan. The record of the run has the result of each machine.
func (d *Deployer) Destroy(ctx context.Context, destroyPlan *DestroyPlan, o DestroyOptions) ([]state.NodeResult, error) {
	recorded := d.Store.State()
	if recorded.Cluster == nil {
		return []state.NodeResult{}, nil
	}
	w := &destroyer{Machines: d.Machines, Store: d.Store, Record: d.Record, Send: d.Send, parallel: o.Parallel, cluster: d.Machines.clusterIdentity(recorded), hosts: destroyPlan.hosts, outcome: Removed}
	if destroyPlan.abandoned != "" {
		w.outcome = Forgotten
	}
	if d.Engines != nil && (!destroyPlan.WholeCluster || d.otherMembersRemain(removedNodes(destroyPlan.Removals))) {
		if err := d.removeDestroyedMembers(ctx, destroyPlan, o.WithoutDrain, o.Drain); err != nil {
			return nil, err
		}
	}
	if destroyPlan.WholeCluster {
		for _, host := range destroyPlan.hosts {
			if h, ok := host.(provision.ClusterRemover); ok {
				h.BeginClusterRemoval(w.cluster)
			}
		}
	}
	results, err := w.removeAll(ctx, destroyPlan.Removals)
	for _, node := range destroyPlan.neverCreated {
		err = errors.Join(err, w.dropNodeRecord(node))
	}
	switch {
	case err != nil:
	case destroyPlan.abandoned != "":
		err = w.abandonHypervisor(destroyPlan.abandoned)
	default:
		err = w.cleanUp(ctx)
	}
	return results, err
}

// otherMembersRemain reports whether deployed nodes that are or may be members remain after the removal: nodes
// whose machines nixbench does not manage.
func (d *Deployer) otherMembersRemain(leaving []string) bool {
	hive, recorded := d.Machines.Hive, d.Store.State()
	return slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool {
		u := hive.Unit(n.Unit)
		member := hive.Broken[n.Unit] != nil || u != nil && u.Deployment.Engine != nil
		return member && recorded.Nodes[n.Name].LastConfirmed != nil && !slices.Contains(leaving, n.Name)
	})
}

// destroyer removes machines and what belongs to them.
type destroyer struct {
	*Machines
	Store    *state.Store
	Record   *state.Recorder
	Send     event.Sink
	parallel int
	cluster  provision.Cluster
	hosts    hypervisors
	outcome  state.Outcome // of each machine that was removed without an error
}

func (w *destroyer) removeAll(ctx context.Context, list []removal) ([]state.NodeResult, error) {
	if len(list) == 0 {
		return []state.NodeResult{}, nil
	}
	w.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Remove, Total: len(list)})
	var nodes []nixeval.Node
	parts := map[string][]removal{} // by node; a node may have two machines by mistake
	for _, machine := range list {
		if parts[machine.Node] == nil {
			nodes = append(nodes, nixeval.Node{Name: machine.Node, Role: machine.Role})
		}
		parts[machine.Node] = append(parts[machine.Node], machine)
	}
	var results []state.NodeResult
	var errs []error
	for _, o := range Each(ctx, nodes, w.parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		w.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Remove, Node: n.Name})
		err := w.removeMachine(ctx, n.Name, parts[n.Name])
		w.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Remove, Node: n.Name, Failed: err != nil})
		return struct{}{}, err
	}) {
		if o.Err != nil && ctx.Err() != nil && errors.Is(o.Err, context.Canceled) {
			o.Err = context.Cause(ctx) // the other errors are about the cancellation
		}
		r := state.NodeResult{Node: o.Node.Name, Unit: o.Node.Name, Outcome: w.outcome}
		duplicate := parts[o.Node.Name][0].duplicate
		text := string(w.outcome)
		if duplicate {
			text = "its second machine is removed"
		}
		if o.Err != nil {
			r.Outcome, r.Error = state.Failed, o.Err.Error()
			text = "failed: " + briefError(o.Node.Name, o.Err)
		}
		if !duplicate || o.Err != nil { // otherwise the record has the node's own result
			w.Record.Result(r)
		}
		w.Send.Send(event.Event{Kind: event.NodeResult, Phase: event.Remove, Node: o.Node.Name, Text: text, Failed: o.Err != nil})
		results, errs = append(results, r), append(errs, o.Err)
	}
	err := errors.Join(errs...)
	removed, absent := 0, 0
	for i, r := range results {
		switch {
		case errs[i] != nil:
		case w.outcome == Removed && !w.wasFound(parts[r.Node]):
			absent++
		default:
			removed++
		}
	}
	text := fmt.Sprintf("%s %s", Count(removed, "machine"), w.outcome)
	if absent > 0 {
		text += fmt.Sprintf(", %d no longer existed", absent)
	}
	w.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Remove, Total: len(nodes), Failed: err != nil, Text: text})
	return results, err
}

// wasFound reports whether a hypervisor has anything of a node's machine.
func (w *destroyer) wasFound(parts []removal) bool {
	return slices.ContainsFunc(parts, func(p removal) bool { return p.State != "" || p.duplicate })
}

// removeMachine removes a node's machine and its record. If only a duplicate machine is removed, the record
// stays.
func (w *destroyer) removeMachine(ctx context.Context, node string, parts []removal) error {
	if err := w.Store.Begin(state.Intent{Run: w.Record.ID(), Node: node, Step: state.RemoveMachine, Since: time.Now().UTC()}); err != nil {
		return &BootError{Node: node, Err: err}
	}
	for _, p := range parts {
		host := w.hosts[p.Hypervisor]
		if host == nil {
			continue // the machine has no hypervisor, or the hypervisor is no longer recorded
		}
		if err := host.Remove(ctx, w.cluster, node); err != nil {
			return &BootError{Node: node, Err: withHypervisor(err, p.Hypervisor, "remove")}
		}
	}
	if parts[0].duplicate {
		return w.Store.Finish(state.Intent{Run: w.Record.ID(), Node: node, Step: state.RemoveMachine})
	}
	return w.dropNodeRecord(node)
}

// dropNodeRecord removes the host key and the record of a node's machine.
func (w *destroyer) dropNodeRecord(node string) error {
	// The key is removed first: without the record, no later run would look for it.
	if err := w.Dir.RemoveHostKey(node); err != nil {
		return &BootError{Node: node, Err: err}
	}
	return w.Store.Update(func(s *state.State) error { s.Removed(node); return nil })
}

// cleanUp removes what no machine uses any more. When no machine is left, it also removes the keys, the
// secrets and the facts, and last the cluster's id. The network and the images carry that id, so it stays as
// long as one of them could not be removed, and that is an error.
func (w *destroyer) cleanUp(ctx context.Context) error {
	stillUsed, err := w.cleanHosts(ctx)
	recorded := w.Store.State()
	if len(recorded.Machines) > 0 {
		if err != nil {
			return err
		}
		return w.writeFacts(recorded)
	}
	if err := errors.Join(w.removeFiles(recorded), err, stillUsed); err != nil {
		return err
	}
	return w.Store.Update(func(s *state.State) error { s.Cluster = nil; return nil })
}

// cleanHosts removes from all hypervisors what no machine uses any more. stillUsed lists what is still in use.
func (w *destroyer) cleanHosts(ctx context.Context) (stillUsed, err error) {
	var errs, used []error
	for _, name := range sortedKeys(w.hosts) { // one after the other: two of them may share a network and a pool
		c, ok := w.hosts[name].(provision.Cleaner)
		if !ok {
			continue
		}
		wait := w.Send.Wait(event.Event{Phase: event.Remove, Text: fmt.Sprintf("hypervisor %s: the removal of unused networks and images", name)})
		all, err := c.Clean(ctx, w.cluster)
		wait.End()
		if err != nil {
			errs = append(errs, withHypervisor(err, name, "clean up"))
		}
		for _, l := range all {
			used = append(used, &provision.Error{
				Hypervisor: name, Op: "remove " + l.What, Err: fmt.Errorf("%w: %s", provision.ErrInUse, l.Why),
				Fix: l.Fix + ", then run nixbench destroy again; nixbench apply would use the remaining objects",
			})
		}
	}
	return errors.Join(used...), errors.Join(errs...)
}

// removeFiles removes the local files that only machines of this cluster need. It is called when no machine is
// left.
func (w *destroyer) removeFiles(recorded *state.State) error {
	roots, _ := filepath.Glob(w.Dir.Root("image-*"))
	for _, root := range roots {
		_ = os.Remove(root) // only a link to an image that can be built again
	}
	if !w.otherNodesRemain(recorded) {
		// The next cluster gets secrets of its own.
		if err := w.Dir.RemoveSecrets(); err != nil {
			return err
		}
	}
	return errors.Join(w.Dir.RemoveFacts(), w.Dir.RemoveKeys())
}

// writeFacts writes the facts of the machines that are left.
func (w *destroyer) writeFacts(recorded *state.State) error {
	data, err := w.encodeFacts(recorded)
	if err != nil || data == nil {
		return err
	}
	return w.Dir.WriteFacts(data, recorded.Machines)
}

// otherNodesRemain reports whether nodes remain whose machines nixbench does not manage: nodes of the hive,
// and nodes that were deployed before. They may go on as the same cluster with the existing secrets.
func (w *destroyer) otherNodesRemain(recorded *state.State) bool {
	return len(recorded.Nodes) > 0 || slices.ContainsFunc(w.Hive.Nodes, func(n nixeval.Node) bool { return !Boots(w.Hive, n) })
}

// Lines describes the plan for the question to the user.
func (d *DestroyPlan) Lines() []string {
	var out []string
	for _, machine := range d.Removals {
		out = append(out, machine.String())
	}
	return append(out, d.Remaining...)
}
