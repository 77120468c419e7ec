package machine

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// OpenPlan contains the planned changes to machines, and the hypervisors and inventories that the plan was computed
// from.
type OpenPlan struct {
	Plan
	hypervisors map[string]state.Hypervisor
	providers   hypervisors
	inventories map[string]provider.Inventory
	images      map[ImageKey]provider.Image // images that MakePlan loaded, so that they are not loaded again
	clientKey   keys.Key                    // SSH key that logs in to the machines; created when the plan is recorded
}

func (plan *OpenPlan) Close() { plan.providers.close() }

// MakePlan surveys the hypervisors and plans the changes to the machines of the selected nodes; nil selects all
// nodes. Only a plan for all nodes removes machines.
func (m *Manager) MakePlan(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*OpenPlan, error) {
	o := Options{Cluster: m.clusterIdentity(recorded), Recorded: recordedMachines(recorded), Recreate: recreate, Fixed: fixedAddresses(m.Hive)}
	all, err := desiredMachines(m.Hive)
	if err != nil {
		return nil, err
	}
	if o.Network, err = m.clusterNetwork(recorded, len(all) > 0); err != nil {
		return nil, err
	}
	if selected != nil {
		o.Selected = func(node string) bool {
			return slices.ContainsFunc(selected, func(n nixeval.Node) bool { return n.Name == node })
		}
	}
	if err := validateNetworkUnchanged(o.Network, recorded); err != nil {
		return nil, err
	}
	plan := &OpenPlan{hypervisors: m.hypervisorConfigs(recorded, len(all) > 0)}
	if err := m.validatePools(plan.hypervisors, recorded); err != nil {
		return nil, err
	}
	o.Closed = m.findClosedHypervisors(plan.hypervisors)
	if plan.providers, err = connectHypervisors(ctx, m.Open, plan.hypervisors, m.Send); err == nil {
		plan.inventories, err = plan.providers.survey(ctx, o.Cluster, o.Network, m.Send)
	}
	err = addForgetHint(err, recorded)
	if err == nil && recreate {
		o.Images, err = m.loadImages(ctx, findImagesToCompare(all, plan.inventories, o))
		plan.images = o.Images
	}
	if err == nil {
		plan.Plan, err = Make(all, plan.inventories, o)
	}
	if err == nil {
		err = m.validateHypervisorURIs(plan, recorded)
	}
	if err == nil {
		err = m.preflight(ctx, plan)
	}
	if err != nil {
		plan.Close()
		return nil, err
	}
	for _, w := range plan.Warnings {
		m.Send.Send(event.Event{Kind: event.Message, Phase: event.Provision, Level: "warning", Text: w})
	}
	return plan, nil
}

// clusterIdentity returns the cluster's name and id, which mark the cluster's machines on hypervisors. Before the
// first apply the state has no id, and clusterIdentity returns a random id, which no machine has.
func (m *Manager) clusterIdentity(recorded *state.State) provider.Cluster {
	id := ""
	if recorded.Cluster != nil {
		id = recorded.Cluster.ID
	} else {
		id = state.NewCluster().ID
	}
	return provider.Cluster{Name: m.Hive.ClusterName(), ID: id}
}

// clusterNetwork returns the network in the hive. If desired is false, because the hive has no machines, it returns
// the recorded network.
func (m *Manager) clusterNetwork(recorded *state.State, desired bool) (provider.Network, error) {
	if !desired && recorded.Cluster != nil {
		n := recorded.Cluster.Network
		cidr, _ := netip.ParsePrefix(n.CIDR) // the error is ignored: CIDR is empty for a network that nixbench does not manage
		return provider.Network{Name: n.Name, Mode: provider.Mode(n.Mode), CIDR: cidr, Bridge: n.Bridge, Domain: n.Domain}, nil
	}
	return desiredNetwork(m.Hive)
}

// hypervisorConfigs returns the hypervisors in the hive, if the hive has machines, and the recorded hypervisors, which
// may have machines of the cluster.
func (m *Manager) hypervisorConfigs(recorded *state.State, desired bool) map[string]state.Hypervisor {
	out := map[string]state.Hypervisor{}
	if recorded.Cluster != nil {
		maps.Copy(out, recorded.Cluster.Hypervisors)
	}
	if desired {
		maps.Copy(out, hypervisorsOf(m.Hive))
	}
	return out
}

// findClosedHypervisors reports for each hypervisor whether it gets no new machines, because the hive no longer
// contains the hypervisor.
func (m *Manager) findClosedHypervisors(where map[string]state.Hypervisor) map[string]bool {
	out, open := map[string]bool{}, hypervisorsOf(m.Hive)
	for name := range where {
		_, ok := open[name]
		out[name] = !ok
	}
	return out
}

// recordedMachines returns the machines in the state.
func recordedMachines(recorded *state.State) map[string]Recorded {
	out := map[string]Recorded{}
	for node, s := range recorded.Machines {
		k := Recorded{Hypervisor: s.Hypervisor, MAC: s.MAC, Address: s.Address, Created: s.Created != nil && !recorded.Removing(node)}
		if i := s.Image; i != nil {
			k.Image = provider.Image{Hash: i.Hash, Format: provider.Format(i.Format), Kernel: i.Kernel, Initrd: i.Initrd, Cmdline: i.Cmdline}
		}
		out[node] = k
	}
	return out
}

// findImagesToCompare returns the images of the selected nodes that have a machine. A plan that
// recreates machines compares these images with the images that the machines were created from.
func findImagesToCompare(all []Desired, inventories map[string]provider.Inventory, o Options) []ImageKey {
	roles := map[string]string{}
	for _, w := range all {
		if o.Selected == nil || o.Selected(w.Node) {
			roles[w.Node] = w.Role
		}
	}
	var out []ImageKey
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		for _, f := range inventories[name].Machines {
			key := ImageKey{Role: roles[f.Node], Kind: inventories[name].Kind}
			if key.Role != "" && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// validateHypervisorURIs returns an error if a hypervisor's name now refers to another host while the
// old host still has a machine. Without this error nixbench would create the machine a second time, on the new host.
func (m *Manager) validateHypervisorURIs(plan *OpenPlan, recorded *state.State) error {
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		s := recorded.Machines[node]
		if s.Created == nil || recorded.Cluster == nil {
			continue
		}
		old, now := recorded.Cluster.Hypervisors[s.Hypervisor], plan.hypervisors[s.Hypervisor]
		present := slices.ContainsFunc(plan.inventories[s.Hypervisor].Machines, func(f provider.Actual) bool { return f.Node == node })
		if now.URI != old.URI && !present {
			return &PlanError{
				Text: fmt.Sprintf("%s: its machine is not on hypervisor %s, whose URI was %s and is %s now", node, s.Hypervisor, old.URI, now.URI),
				Fix:  "give the new host its own name in cluster.hypervisors; or restore the old URI, and remove the machine first: nixbench destroy --on " + node,
			}
		}
	}
	return nil
}

// validatePools returns an error if the hive names another pool for a hypervisor that has machines.
// Without this error nixbench would not find the machines' disks in the new pool, and would recreate the machines.
func (m *Manager) validatePools(where map[string]state.Hypervisor, recorded *state.State) error {
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		s := recorded.Machines[node]
		if s.Image == nil || recorded.Cluster == nil {
			continue
		}
		if old, now := recorded.Cluster.Hypervisors[s.Hypervisor], where[s.Hypervisor]; old.Pool != now.Pool {
			return &PlanError{
				Text: fmt.Sprintf("%s: its disks are in the pool %s of hypervisor %s, and the hive sets pool %s", node, old.Pool, s.Hypervisor, now.Pool),
				Fix:  fmt.Sprintf("restore cluster.hypervisors.%s.pool; or add a hypervisor entry with its own name for the other pool, and remove the machine first: nixbench destroy --on %s", s.Hypervisor, node),
			}
		}
	}
	return nil
}

// validateNetworkUnchanged returns an error if the hive's network differs from the network of existing
// machines. nixbench cannot change a network while machines use it.
func validateNetworkUnchanged(wanted provider.Network, recorded *state.State) error {
	if recorded.Cluster == nil {
		return nil
	}
	old, now := recorded.Cluster.Network, toStateNetwork(wanted)
	if !wanted.Mode.Ours() { // nixbench does not configure the domain of a network that it does not manage
		old.Domain, now.Domain = "", ""
	}
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		if recorded.Machines[node].Created != nil && old != now {
			return &PlanError{
				Text: fmt.Sprintf("%s and perhaps others are on network %s, and the hive sets network %s", node, formatNetwork(old), formatNetwork(now)),
				Fix:  "restore cluster.network, or recreate the cluster: nixbench destroy, then nixbench apply",
			}
		}
	}
	return nil
}

// formatNetwork formats a network: `net (nat, 10.0.0.0/24, internal)`.
func formatNetwork(n state.Network) string {
	var about []string
	for _, text := range []string{n.Mode, n.CIDR, n.Bridge, n.Domain} {
		if text != "" {
			about = append(about, text)
		}
	}
	return fmt.Sprintf("%s (%s)", n.Name, strings.Join(about, ", "))
}

func toStateNetwork(n provider.Network) state.Network {
	out := state.Network{Name: n.Name, Mode: string(n.Mode), Bridge: n.Bridge, Domain: n.Domain}
	if n.CIDR.IsValid() {
		out.CIDR = n.CIDR.String()
	}
	return out
}
