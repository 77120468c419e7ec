package machines

import (
	"context"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Removed is the outcome of removing a machine.
const Removed state.Outcome = "removed"

// removal is a machine that a destroy plan removes.
type Removal struct {
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
	Removals     []Removal
	WholeCluster bool     // no machine is left afterwards, so that the network and images are removed, too
	Remaining    []string // messages about what is not removed
	neverCreated []string // nodes whose machine was planned and never created: only its record is removed
	hosts        hypervisors
	abandoned    string // the hypervisor that is removed from the state with its machines
}

func (d Removal) String() string {
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
func RemovedNodes(list []Removal) []string {
	var out []string
	for _, machine := range list {
		if !machine.duplicate && !slices.Contains(out, machine.Node) {
			out = append(out, machine.Node)
		}
	}
	return out
}

// RemovedNodes returns the nodes whose last machine is removed.
func (d *DestroyPlan) RemovedNodes() []string { return RemovedNodes(d.Removals) }

// Close closes the connections to the hypervisors.
func (d *DestroyPlan) Close() { d.hosts.close() }

// PlanDestroy finds all machines of the cluster, independent of the hive: the recorded ones and those that
// carry nixbench's metadata. selectNodes selects some of them; nil selects all.
func (m *Manager) PlanDestroy(ctx context.Context, recorded *state.State, selectNodes func([]nixeval.Node) ([]nixeval.Node, error)) (*DestroyPlan, error) {
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
	var all []Removal
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		for _, c := range sites[name].Copies {
			d.Remaining = append(d.Remaining, provision.CopyText(name, c))
		}
		for _, f := range sites[name].Machines {
			_, remembered := recorded.Machines[f.Node]
			all = append(all, Removal{Node: f.Node, Role: f.Role, Hypervisor: name, State: f.State, unrecorded: !remembered})
			seen[f.Node] = true
		}
	}
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		if s := recorded.Machines[node]; !seen[node] {
			all = append(all, Removal{Node: node, Role: s.Role, Hypervisor: s.Hypervisor, neverCreated: s.Created == nil})
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
		list = slices.DeleteFunc(slices.Clone(all), func(machine Removal) bool {
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

func sortByNode(all []Removal) {
	slices.SortStableFunc(all, func(a, b Removal) int { return nixeval.CompareNatural(a.Node, b.Node) })
}

// asNodes returns the machines as nodes that can be selected. Nodes that the hive still has keep their tags.
func (m *Manager) asNodes(all []Removal) []nixeval.Node {
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

// Lines describes the plan for the question to the user.
func (d *DestroyPlan) Lines() []string {
	var out []string
	for _, machine := range d.Removals {
		out = append(out, machine.String())
	}
	return append(out, d.Remaining...)
}
