package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const Removed state.Outcome = "removed"

type Removal struct {
	Node         string         `json:"node"`
	Role         string         `json:"role,omitempty"`
	Hypervisor   string         `json:"hypervisor"`
	State        provider.State `json:"state,omitempty"` // state of the machine; empty if no hypervisor has a domain or volume of the machine
	neverCreated bool           // whether the machine is only recorded: its creation did not begin
	about        string         // message for the user: what is removed, if it is not only a machine in this state
}

type DestroyPlan struct {
	Removals     []Removal
	WholeCluster bool     // whether all machines of the cluster are removed; then the network and the images are removed, too
	Remaining    []string // messages for the user: objects that destroy does not remove, and records that destroy removes
	neverCreated []string // nodes whose machine was recorded and never created: only the record is removed
	hosts        hypervisors
	abandoned    string // name of a lost hypervisor; the hypervisor and its machines are removed from the state; empty: none
}

func (d Removal) String() string {
	text := d.Node
	if d.Hypervisor != "" {
		text += " on " + d.Hypervisor
	}
	switch {
	case d.about != "":
		text += ": " + d.about
	case d.State == "":
		text += ": it no longer exists"
	case d.State != provider.Running:
		text += ": " + string(d.State)
	}
	return text
}

// RemovedNodes returns the nodes of the removals, each node once: a node may have machines on two hypervisors.
func RemovedNodes(list []Removal) []string {
	var out []string
	for _, machine := range list { // sorted by node
		out = append(out, machine.Node)
	}
	return slices.Compact(out)
}

func (d *DestroyPlan) RemovedNodes() []string { return RemovedNodes(d.Removals) }

func (d *DestroyPlan) Close() { d.hosts.close() }

// PlanDestroy plans the removal of the machines in the state and of the machines that the hypervisors report for the cluster, even if
// the hive does not contain them. selectNodes returns the nodes that the user selected; if it is nil, all nodes are selected.
func (m *Manager) PlanDestroy(ctx context.Context, recorded *state.State, selectNodes func([]nixeval.Node) ([]nixeval.Node, error)) (*DestroyPlan, error) {
	if recorded.Cluster == nil {
		return &DestroyPlan{}, nil
	}
	o, err := m.observeRecorded(ctx, recorded)
	if err != nil {
		return nil, err
	}
	d := &DestroyPlan{hosts: o.hosts}
	seen := map[string]bool{}
	var all []Removal
	for _, name := range slices.Sorted(maps.Keys(o.inventories)) {
		for _, f := range o.inventories[name].Machines {
			r := Removal{Node: f.Node, Role: f.Role, Hypervisor: name, State: f.State}
			if _, isRecorded := recorded.Machines[f.Node]; !isRecorded {
				r.about = "left by an interrupted run"
			}
			all = append(all, r)
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
		selected, err := selectNodes(nodesOf(m.Hive, all))
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

// nodesOf returns the nodes of the machines, each once, so that the user's selection can be applied to them. A node has
// tags only if the hive contains the node.
func nodesOf(hive *nixeval.Hive, all []Removal) []nixeval.Node {
	var out []nixeval.Node
	for _, machine := range all {
		n := nodeOf(hive, machine.Node)
		n.Role = cmp.Or(n.Role, machine.Role)
		out = append(out, n)
	}
	return slices.CompactFunc(out, func(a, b nixeval.Node) bool { return a.Name == b.Name })
}

func (d *DestroyPlan) Lines() []string {
	var out []string
	for _, machine := range d.Removals {
		out = append(out, machine.String())
	}
	return append(out, d.Remaining...)
}

// Forgotten is the outcome for a machine that is removed from the state because its hypervisor is permanently lost.
const Forgotten state.Outcome = "forgotten"

// PlanAbandon plans to remove a lost hypervisor and its machines from the state. It connects to no hypervisor,
// so the domains and disks on the lost hypervisor are not removed.
func (m *Manager) PlanAbandon(recorded *state.State, hypervisor string) *DestroyPlan {
	d := &DestroyPlan{abandoned: hypervisor, WholeCluster: true}
	for _, node := range nixeval.SortedNames(recorded.Machines) {
		s := recorded.Machines[node]
		if s.Hypervisor != hypervisor {
			d.WholeCluster = false
			continue
		}
		d.Removals = append(d.Removals, Removal{Node: node, Role: s.Role, Hypervisor: hypervisor, about: "its address and its host key are removed from the record"})
	}
	sortByNode(d.Removals)
	if len(d.Removals) > 0 {
		// The user needs this if the hypervisor becomes reachable again.
		h := recorded.Cluster.Hypervisors[hypervisor]
		var domains []string
		for _, machine := range d.Removals {
			domains = append(domains, clusterIdentity(m.Hive, recorded).MachineName(machine.Node))
		}
		left := fmt.Sprintf("left on %s, at %s: %s, with their disks, and the keys on them, in pool %s", hypervisor, h.URI, strings.Join(domains, ", "), h.Pool)
		if n := recorded.Cluster.Network; n.Mode.Ours() {
			left += ", and network " + n.Name
		}
		d.Remaining = []string{left}
	}
	return d
}
