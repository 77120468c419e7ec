package stages

import (
	"context"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// MachinePreview is what apply would do with a node's machine.
type MachinePreview struct {
	Action     changes.Action `json:"action"`
	Hypervisor string         `json:"hypervisor"`
	Address    netip.Addr     `json:"address,omitzero"`
	Why        string         `json:"why,omitempty"`
}

// machinePreviews is what apply would do with machines.
type machinePreviews struct {
	byNode   map[string]*MachinePreview // machines that remain, by node name
	removed  []Preview                  // nodes whose machines would be removed, in the order of the machine plan
	obsolete []string                   // the nodes in removed that have no other machine, so that they disappear
	facts    string                     // path of the file with the facts as they would be after apply; "": the evaluator uses its own facts file
}

// isDown reports whether the node's machine does not run, so that the node cannot be inspected.
func (m machinePreviews) isDown(node string) bool {
	p := m.byNode[node]
	return p != nil && isDown(p.Action)
}

// isDown reports whether the machine does not run, or is not connected to its network. a is the action that the machine needs.
func isDown(a changes.Action) bool {
	return slices.Contains([]changes.Action{changes.Create, changes.Finish, changes.Start, changes.Resume, changes.Reconnect}, a)
}

// planMachines returns what apply would do with machines. out.facts is a temporary file with the facts as they would be after
// apply, but without host keys that do not exist yet. done removes this file; the caller calls it.
func (r previewer) planMachines(ctx context.Context) (out machinePreviews, done func(), err error) {
	out.byNode = map[string]*MachinePreview{}
	done = func() {}
	m := r.Machines
	if m == nil || !m.HasMachines(r.recorded) {
		return out, done, nil
	}
	var selected []nixeval.Node
	if r.Partial {
		if selected = append([]nixeval.Node{}, machine.Booted(m.Hive, r.nodes)...); len(selected) == 0 {
			return out, done, nil
		}
	}
	machinePlan, err := r.Deployer.planMachines(ctx, r.recorded, selected, r.Recreate)
	if err != nil {
		return out, done, err
	}
	defer machinePlan.Close()
	for _, c := range machinePlan.Changes {
		p := &MachinePreview{Action: c.Action, Hypervisor: c.Hypervisor, Address: c.Address, Why: c.Why}
		if c.Action == changes.Remove {
			out.removed = append(out.removed, Preview{Node: c.Node, Unit: c.Role, Action: plan.WouldRemove, Machine: p, plan: plan.Node{Action: plan.WouldRemove}})
			if !machinePlan.HasMachine(c.Node) {
				out.obsolete = append(out.obsolete, c.Node)
			}
		} else {
			out.byNode[c.Node] = p
		}
	}
	if !machinePlan.Network.Mode.Ours() || r.Eval.Facts != "" && r.Eval.Facts != m.Dir.Facts() {
		return out, done, nil
	}
	next := r.recorded.Clone()
	for _, p := range machinePlan.Places {
		machine := next.Machines[p.Node]
		machine.MAC, machine.Address = p.MAC, p.Address
		next.Machines[p.Node] = machine
	}
	data, err := m.EncodeFacts(next)
	if err != nil {
		return out, done, err
	}
	out.facts, done, err = writeFacts(data)
	return out, done, err
}
