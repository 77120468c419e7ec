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

// doomed is a machine that is to be removed.
type doomed struct {
	Node       string          `json:"node"`
	Role       string          `json:"role,omitempty"`
	Hypervisor string          `json:"hypervisor"`
	State      provision.State `json:"state,omitempty"` // empty where nothing was found
	never      bool            // it was decided on, and nothing of it was made
	orphan     bool
	double     bool   // a second one that the node has by mistake: the node stays, with its other one
	note       string // what is to be said of it, if it is only forgotten
}

// Doom is all that a destroy will remove.
type Doom struct {
	List  []doomed
	Whole bool     // nothing is left afterwards, so that the network and images go, too
	Left  []string // what is not removed, and should be known
	never []string // nodes whose machine was decided on, and never made: only the record of it is removed
	hosts hypervisors
	gone  string // the hypervisor that is forgotten with them
}

func (d doomed) String() string {
	text := d.Node
	if d.Hypervisor != "" {
		text += " on " + d.Hypervisor
	}
	switch {
	case d.note != "":
		text += ": " + d.note
	case d.orphan:
		text += ": left behind by a run that was cut off"
	case d.State == "":
		text += ": nothing of it is there any more"
	case d.State != provision.Running:
		text += ": " + string(d.State)
	}
	return text
}

// leaving are the nodes that are gone with these machines, each once.
func leaving(list []doomed) []string {
	var out []string
	for _, one := range list {
		if !one.double && !slices.Contains(out, one.Node) {
			out = append(out, one.Node)
		}
	}
	return out
}

// Close ends the connections.
func (d *Doom) Close() { d.hosts.close() }

// Doom finds all machines of the cluster, whatever the hive says: those that are remembered and
// those that carry our mark. meant picks some of them; nil means all.
func (m *Machines) Doom(ctx context.Context, known *state.State, meant func([]nixeval.Node) ([]nixeval.Node, error)) (*Doom, error) {
	if known.Cluster == nil {
		return &Doom{}, nil
	}
	net, err := m.network(known, false)
	if err != nil {
		return nil, err
	}
	d := &Doom{}
	if d.hosts, err = connect(ctx, m.Open, known.Cluster.Hypervisors, m.Send); err != nil {
		d.Close()
		return nil, forgettable(err, known)
	}
	sites, err := d.hosts.survey(ctx, m.cluster(known), net, m.Send)
	if err != nil {
		d.Close()
		return nil, forgettable(err, known)
	}
	seen := map[string]bool{}
	var all []doomed
	for _, name := range sortedKeys(sites) {
		for _, c := range sites[name].Copies {
			d.Left = append(d.Left, provision.CopyText(name, c))
		}
		for _, f := range sites[name].Machines {
			_, remembered := known.Machines[f.Node]
			all = append(all, doomed{Node: f.Node, Role: f.Role, Hypervisor: name, State: f.State, orphan: !remembered})
			seen[f.Node] = true
		}
	}
	for _, node := range sortedKeys(known.Machines) {
		if s := known.Machines[node]; !seen[node] {
			all = append(all, doomed{Node: node, Role: s.Role, Hypervisor: s.Hypervisor, never: s.Created == nil})
		}
	}
	byNode(all)
	list := all
	if meant != nil {
		picked, err := meant(m.asNodes(all))
		if err != nil {
			d.Close()
			return nil, err
		}
		list = slices.DeleteFunc(slices.Clone(all), func(one doomed) bool {
			return !slices.ContainsFunc(picked, func(n nixeval.Node) bool { return n.Name == one.Node })
		})
	}
	d.Whole = len(list) == len(all)
	for _, one := range list {
		if one.never {
			d.never = append(d.never, one.Node)
			d.Left = append(d.Left, one.Node+": it was never made; it is forgotten")
		} else {
			d.List = append(d.List, one)
		}
	}
	return d, nil
}

func byNode(all []doomed) {
	slices.SortStableFunc(all, func(a, b doomed) int { return nixeval.CompareNatural(a.Node, b.Node) })
}

// asNodes are machines as nodes that can be picked, with the tags that the hive gives them if it
// still has them.
func (m *Machines) asNodes(all []doomed) []nixeval.Node {
	var out []nixeval.Node
	for _, one := range all {
		n := nixeval.Node{Name: one.Node, Unit: one.Node, Role: one.Role, Tags: []string{}}
		for _, h := range m.Hive.Nodes {
			if h.Name == one.Node {
				n = h
			}
		}
		if !slices.ContainsFunc(out, func(o nixeval.Node) bool { return o.Name == n.Name }) {
			out = append(out, n)
		}
	}
	return out
}

// DestroyOptions say how to remove machines.
type DestroyOptions struct {
	Parallel     int
	WithoutDrain bool // nodes of a living cluster leave it without letting go of their work
	Drain        engine.DrainOptions
}

// Destroy removes machines. What became of each is in the record of the run.
func (d *Deployer) Destroy(ctx context.Context, doom *Doom, o DestroyOptions) ([]state.NodeResult, error) {
	known := d.Store.State()
	if known.Cluster == nil {
		return []state.NodeResult{}, nil
	}
	w := &wrecker{Machines: d.Machines, Store: d.Store, Record: d.Record, Send: d.Send, parallel: o.Parallel, cluster: d.Machines.cluster(known), hosts: doom.hosts, outcome: Removed}
	if doom.gone != "" {
		w.outcome = Forgotten
	}
	if d.Engines != nil && (!doom.Whole || d.othersStay(leaving(doom.List))) {
		if err := d.takeOut(ctx, doom, o.WithoutDrain, o.Drain); err != nil {
			return nil, err
		}
	}
	if doom.Whole {
		for _, host := range doom.hosts {
			if h, ok := host.(provision.Dissolver); ok {
				h.Dissolve(w.cluster)
			}
		}
	}
	results, err := w.remove(ctx, doom.List)
	for _, node := range doom.never {
		err = errors.Join(err, w.forgetNode(node))
	}
	switch {
	case err != nil:
	case doom.gone != "":
		err = w.forget(doom.gone)
	default:
		err = w.clean(ctx)
	}
	return results, err
}

// othersStay tells whether nodes that were deployed, and may be members, outlive these: machines
// that are not ours.
func (d *Deployer) othersStay(leaving []string) bool {
	hive, known := d.Machines.Hive, d.Store.State()
	return slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool {
		u := hive.Unit(n.Unit)
		member := hive.Broken[n.Unit] != nil || u != nil && u.Deployment.Engine != nil
		return member && known.Nodes[n.Name].LastConfirmed != nil && !slices.Contains(leaving, n.Name)
	})
}

// wrecker removes machines.
type wrecker struct {
	*Machines
	Store    *state.Store
	Record   *state.Recorder
	Send     event.Sink
	parallel int
	cluster  provision.Cluster
	hosts    hypervisors
	outcome  state.Outcome // of each that went well
}

func (w *wrecker) remove(ctx context.Context, list []doomed) ([]state.NodeResult, error) {
	if len(list) == 0 {
		return []state.NodeResult{}, nil
	}
	w.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Remove, Total: len(list)})
	var nodes []nixeval.Node
	parts := map[string][]doomed{} // a node's, of which there may be two by a mistake
	for _, one := range list {
		if parts[one.Node] == nil {
			nodes = append(nodes, nixeval.Node{Name: one.Node, Role: one.Role})
		}
		parts[one.Node] = append(parts[one.Node], one)
	}
	var results []state.NodeResult
	var errs []error
	for _, o := range Each(ctx, nodes, w.parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		w.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Remove, Node: n.Name})
		err := w.removeOne(ctx, n.Name, parts[n.Name])
		w.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Remove, Node: n.Name, Failed: err != nil})
		return struct{}{}, err
	}) {
		if o.Err != nil && ctx.Err() != nil && errors.Is(o.Err, context.Canceled) {
			o.Err = context.Cause(ctx) // the rest is about the cancelling
		}
		r := state.NodeResult{Node: o.Node.Name, Unit: o.Node.Name, Outcome: w.outcome}
		double := parts[o.Node.Name][0].double
		text := string(w.outcome)
		if double {
			text = "its second machine is removed"
		}
		if o.Err != nil {
			r.Outcome, r.Error = state.Failed, o.Err.Error()
			text = "failed: " + brief(o.Node.Name, o.Err)
		}
		if !double || o.Err != nil { // else what became of the node is on record
			w.Record.Result(r)
		}
		w.Send.Send(event.Event{Kind: event.NodeResult, Phase: event.Remove, Node: o.Node.Name, Text: text, Failed: o.Err != nil})
		results, errs = append(results, r), append(errs, o.Err)
	}
	err := errors.Join(errs...)
	gone, absent := 0, 0
	for i, r := range results {
		switch {
		case errs[i] != nil:
		case w.outcome == Removed && !w.there(parts[r.Node]):
			absent++
		default:
			gone++
		}
	}
	text := fmt.Sprintf("%s %s", Count(gone, "machine"), w.outcome)
	if absent > 0 {
		text += fmt.Sprintf(", %d not there any more", absent)
	}
	w.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Remove, Total: len(nodes), Failed: err != nil, Text: text})
	return results, err
}

// there tells whether anything of a node's machine was found.
func (w *wrecker) there(parts []doomed) bool {
	return slices.ContainsFunc(parts, func(p doomed) bool { return p.State != "" || p.double })
}

// removeOne removes a node's machine, and what is remembered of it. A second machine that
// a node has by mistake goes alone.
func (w *wrecker) removeOne(ctx context.Context, node string, parts []doomed) error {
	if err := w.Store.Begin(state.Intent{Run: w.Record.ID(), Node: node, Step: state.RemoveMachine, Since: time.Now().UTC()}); err != nil {
		return &BootError{Node: node, Err: err}
	}
	for _, p := range parts {
		host := w.hosts[p.Hypervisor]
		if host == nil {
			continue // it was never given one, or that is gone
		}
		if err := host.Remove(ctx, w.cluster, node); err != nil {
			return &BootError{Node: node, Err: located(err, p.Hypervisor, "remove")}
		}
	}
	if parts[0].double {
		return w.Store.Finish(state.Intent{Run: w.Record.ID(), Node: node, Step: state.RemoveMachine})
	}
	return w.forgetNode(node)
}

// forgetNode removes what is remembered of a node's machine.
func (w *wrecker) forgetNode(node string) error {
	// The key first: without the machine's entry nobody would look for it again.
	if err := w.Dir.RemoveHostKey(node); err != nil {
		return &BootError{Node: node, Err: err}
	}
	return w.Store.Update(func(s *state.State) error { s.Removed(node); return nil })
}

// clean removes what no machine uses any more. When no machine is left, it also removes the keys, the secrets and
// the facts, and last the cluster's id: only with it are the network and the images recognised as
// this cluster's. So the id stays as long as one of them could not be removed, and that is an error.
func (w *wrecker) clean(ctx context.Context) error {
	left, err := w.cleanHosts(ctx)
	known := w.Store.State()
	if len(known.Machines) > 0 {
		if err != nil {
			return err
		}
		return w.facts(known)
	}
	if err := errors.Join(w.removeFiles(known), err, left); err != nil {
		return err
	}
	return w.Store.Update(func(s *state.State) error { s.Cluster = nil; return nil })
}

// cleanHosts removes from all hypervisors what no machine uses any more. left says what is still used.
func (w *wrecker) cleanHosts(ctx context.Context) (left, err error) {
	var errs, used []error
	for _, name := range sortedKeys(w.hosts) { // not at once: two of them may have one network and pool
		c, ok := w.hosts[name].(provision.Cleaner)
		if !ok {
			continue
		}
		wait := w.Send.Wait(event.Event{Phase: event.Remove, Text: fmt.Sprintf("hypervisor %s: the removal of what no machine uses", name)})
		all, err := c.Clean(ctx, w.cluster)
		wait.End()
		if err != nil {
			errs = append(errs, located(err, name, "clean up"))
		}
		for _, l := range all {
			used = append(used, &provision.Error{
				Hypervisor: name, Op: "remove " + l.What, Err: fmt.Errorf("%w: %s", provision.ErrInUse, l.Why),
				Fix: l.Fix + ", then run nixbench destroy again; nixbench apply goes on with what is left",
			})
		}
	}
	return errors.Join(used...), errors.Join(errs...)
}

// removeFiles removes what is only there for machines of ours, of which none is left.
func (w *wrecker) removeFiles(known *state.State) error {
	roots, _ := filepath.Glob(w.Dir.Root("image-*"))
	for _, root := range roots {
		_ = os.Remove(root) // a link to an image that can be made again
	}
	if !w.outlived(known) {
		// The next cluster gets secrets of its own.
		if err := w.Dir.RemoveSecrets(); err != nil {
			return err
		}
	}
	return errors.Join(w.Dir.RemoveFacts(), w.Dir.RemoveKeys())
}

// facts writes those of the machines that are left.
func (w *wrecker) facts(known *state.State) error {
	data, err := w.runtime(known)
	if err != nil || data == nil {
		return err
	}
	return w.Dir.WriteFacts(data, known.Machines)
}

// outlived tells whether nodes whose machines are not ours go on, perhaps as the same cluster,
// with the secrets that they have: those of the hive, and others that were deployed to once.
func (w *wrecker) outlived(known *state.State) bool {
	return len(known.Nodes) > 0 || slices.ContainsFunc(w.Hive.Nodes, func(n nixeval.Node) bool { return !Boots(w.Hive, n) })
}

// Lines are what people are asked about.
func (d *Doom) Lines() []string {
	var out []string
	for _, one := range d.List {
		out = append(out, one.String())
	}
	return append(out, d.Left...)
}
