package deploy

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// MachinePreview is what apply would do with a node's machine.
type MachinePreview struct {
	Action     provision.Action `json:"action"`
	Hypervisor string           `json:"hypervisor"`
	Address    netip.Addr       `json:"address,omitzero"`
	Why        string           `json:"why,omitempty"`
}

// machinePreviews is what apply would do with machines, by node, and the nodes whose machines it
// would remove, in order.
type machinePreviews struct {
	byNode  map[string]*MachinePreview
	removed []Preview
}

// isDown reports whether the node's machine does not run, so that the node cannot be inspected.
func (m machinePreviews) isDown(node string) bool {
	p := m.byNode[node]
	return p != nil && p.Action != provision.Keep && p.Action != provision.Restart
}

// previewMachines finds out what apply would do with machines. It makes the evaluator use the
// facts as they would be after that, in a temporary file that done removes. These facts lack
// host keys that do not exist yet.
func (d *Deployer) previewMachines(ctx context.Context, recorded *state.State, nodes []nixeval.Node, o PreviewOptions) (out machinePreviews, done func(), err error) {
	out.byNode = map[string]*MachinePreview{}
	done = func() {}
	m := d.Machines
	if m == nil || !m.HasMachines(recorded) {
		return out, done, nil
	}
	var selected []nixeval.Node
	if o.Partial {
		if selected = append([]nixeval.Node{}, bootedNodes(m.Hive, nodes)...); len(selected) == 0 {
			return out, done, nil
		}
	}
	plan, err := m.makePlan(ctx, recorded, selected, o.Recreate)
	if err != nil {
		return out, done, err
	}
	defer plan.close()
	for _, c := range plan.Changes {
		p := &MachinePreview{Action: c.Action, Hypervisor: c.Hypervisor, Address: c.Address, Why: c.Why}
		if c.Action == provision.Remove {
			out.removed = append(out.removed, Preview{Node: c.Node, Unit: c.Role, Action: WouldRemove, Machine: p})
		} else {
			out.byNode[c.Node] = p
		}
	}
	if !plan.Network.Mode.Ours() || d.Eval.Facts != "" && d.Eval.Facts != m.Dir.Facts() {
		return out, done, nil
	}
	next := recorded.Clone()
	for _, p := range plan.Places {
		machine := next.Machines[p.Node]
		machine.MAC, machine.Address = p.MAC, p.Address
		next.Machines[p.Node] = machine
	}
	data, err := m.encodeFacts(next)
	if err != nil || data == nil {
		return out, done, err
	}
	dir, err := os.MkdirTemp("", "nixbench-plan-")
	if err != nil {
		return out, done, err
	}
	d.Eval.Facts = filepath.Join(dir, "runtime.json")
	return out, func() { _ = os.RemoveAll(dir) }, os.WriteFile(d.Eval.Facts, data, 0o600)
}

// MachineStatus is the observed state of a node's machine.
type MachineStatus struct {
	State      string     `json:"state"` // running, off, paused, crashed, half or absent
	Hypervisor string     `json:"hypervisor,omitempty"`
	Address    netip.Addr `json:"address,omitzero"`
}

// Off reports whether nixbench boots the node and its machine does not run.
func (m *MachineStatus) Off() bool { return m != nil && m.State != string(provision.Running) }

// Status asks the hypervisors for the state of all machines that nixbench boots.
func (m *Machines) Status(ctx context.Context, recorded *state.State) (map[string]*MachineStatus, error) {
	out := map[string]*MachineStatus{}
	if !m.HasMachines(recorded) {
		return out, nil
	}
	for _, n := range bootedNodes(m.Hive, m.Hive.Nodes) {
		s := recorded.Machines[n.Name]
		out[n.Name] = &MachineStatus{State: "absent", Hypervisor: s.Hypervisor, Address: s.Address}
	}
	if recorded.Cluster == nil {
		return out, nil // no machine was ever created, so there is no hypervisor to ask
	}
	net, err := m.clusterNetwork(recorded, false)
	if err != nil {
		return nil, err
	}
	hosts, err := connectHypervisors(ctx, m.Open, recorded.Cluster.Hypervisors, m.Send)
	defer hosts.close()
	if err != nil {
		return nil, addAbandonHint(err, recorded)
	}
	inventories, err := hosts.survey(ctx, m.clusterIdentity(recorded), net, m.Send)
	if err != nil {
		return nil, addAbandonHint(err, recorded)
	}
	for _, name := range sortedKeys(inventories) {
		for _, f := range inventories[name].Machines {
			if s := out[f.Node]; s != nil {
				s.State, s.Hypervisor = string(f.State), name
			}
			if f.Detached && out[f.Node] != nil {
				m.Send.Send(event.Event{Kind: event.Message, Node: f.Node, Level: "warning",
					Text: fmt.Sprintf("network %s was stopped or removed while %s ran, so it cannot be reached; nixbench apply connects it again", net.Name, f.Node)})
			}
		}
	}
	return out, nil
}
