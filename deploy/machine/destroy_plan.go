package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const Removed state.Outcome = "removed"

type DestroyPlan struct {
	Removals     []changes.Change
	WholeCluster bool     // whether all machines of the cluster are removed; then the network and the images are removed, too
	Remaining    []string // messages for the user: objects that destroy does not remove
	hosts        hypervisors
	abandoned    string // name of a lost hypervisor; the hypervisor and its machines are removed from the state; empty: none
}

// removedNodes returns the nodes of the removals, each node once: a node may have machines on two hypervisors.
func removedNodes(removals []changes.Change) []string {
	var out []string
	for _, c := range removals { // sorted by node
		out = append(out, c.Node)
	}
	return slices.Compact(out)
}

func (d *DestroyPlan) RemovedNodes() []string { return removedNodes(d.Removals) }

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
	var all []changes.Change
	for _, name := range slices.Sorted(maps.Keys(o.inventories)) {
		for _, f := range o.inventories[name].Machines {
			c := changes.Change{Node: f.Node, Role: f.Role, Action: changes.Remove, Hypervisor: name}
			if _, isRecorded := recorded.Machines[f.Node]; !isRecorded {
				c.Why = "left by an interrupted run"
			} else if f.State != provider.Running {
				c.Why = string(f.State)
			}
			all = append(all, c)
			seen[f.Node] = true
		}
	}
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		if s := recorded.Machines[node]; !seen[node] {
			c := changes.Change{Node: node, Role: s.Role, Action: changes.Remove, Hypervisor: s.Hypervisor, Why: "it no longer exists"}
			if s.Created == nil {
				c.Why = "it was never created; its record is removed"
			}
			all = append(all, c)
		}
	}
	sortByNode(all)
	d.Removals = all
	if selectNodes != nil {
		selected, err := selectNodes(nodesOf(m.Hive, all))
		if err != nil {
			d.Close()
			return nil, err
		}
		d.Removals = slices.DeleteFunc(slices.Clone(all), func(machine changes.Change) bool {
			return !slices.ContainsFunc(selected, func(n nixeval.Node) bool { return n.Name == machine.Node })
		})
	}
	d.WholeCluster = len(d.Removals) == len(all)
	return d, nil
}

func sortByNode(all []changes.Change) {
	slices.SortStableFunc(all, func(a, b changes.Change) int { return nixeval.CompareNatural(a.Node, b.Node) })
}

// nodesOf returns the nodes of the machines, each once, so that the user's selection can be applied to them. A node has
// tags only if the hive contains the node.
func nodesOf(hive *nixeval.Hive, all []changes.Change) []nixeval.Node {
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
		out = append(out, strings.TrimPrefix(machine.String(), "remove "))
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
		d.Removals = append(d.Removals, changes.Change{Node: node, Role: s.Role, Action: changes.Remove, Hypervisor: hypervisor, Why: "its address and its host key are removed from the record"})
	}
	sortByNode(d.Removals)
	if len(d.Removals) > 0 {
		// The user needs this if the hypervisor becomes reachable again.
		d.Remaining = []string{fmt.Sprintf("left on %s, at %s: the machines, their disks and keys, the images and the network of the cluster with the id %s",
			hypervisor, recorded.Cluster.Hypervisors[hypervisor].URI, recorded.Cluster.ID)}
	}
	return d
}
