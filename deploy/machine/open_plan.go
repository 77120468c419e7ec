package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/image"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// OpenPlan contains the planned changes to machines, the observation that the plan was computed from, and the connections that execute it.
type OpenPlan struct {
	changes.Plan
	observed
	hypervisors map[string]provider.Hypervisor
	images      map[image.Key]provider.Image // images that MakePlan has already loaded, so that Start does not load them again
	clientKey   keys.Key                     // SSH key that logs in to the machines; created when the plan is recorded
}

func (plan *OpenPlan) Close() { plan.hosts.close() }

// MakePlan surveys the hypervisors and plans the changes to the machines of the selected nodes. If selected is nil, the
// plan is for all nodes. Only a plan for all nodes removes machines.
func (m *Manager) MakePlan(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*OpenPlan, error) {
	all, err := desiredMachines(m.Hive)
	if err != nil {
		return nil, err
	}
	net, err := m.clusterNetwork(recorded, len(all) > 0)
	if err != nil {
		return nil, err
	}
	if err := validateNetworkUnchanged(net, recorded); err != nil {
		return nil, err
	}
	plan := &OpenPlan{hypervisors: m.hypervisorConfigs(recorded, len(all) > 0)}
	if err := m.validatePools(plan.hypervisors, recorded); err != nil {
		return nil, err
	}
	if plan.observed, err = m.observe(ctx, recorded, plan.hypervisors, net); err != nil {
		return nil, err
	}
	o := m.planOptions(plan.observed, plan.hypervisors, recorded)
	if selected != nil {
		o.Selected = func(node string) bool {
			return slices.ContainsFunc(selected, func(n nixeval.Node) bool { return n.Name == node })
		}
	}
	if o.Recreate = recreate; recreate {
		o.Images, err = m.images().Load(ctx, findImagesToCompare(all, plan.inventories, o))
		plan.images = o.Images
	}
	if err == nil {
		plan.Plan, err = changes.Make(all, plan.inventories, o)
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
	return plan, nil
}

// planOptions returns the options of a plan for all nodes.
func (m *Manager) planOptions(seen observed, where map[string]provider.Hypervisor, recorded *state.State) changes.Options {
	o := changes.Options{Cluster: seen.cluster, Network: seen.network, Recorded: maps.Clone(recorded.Machines), Fixed: fixedAddresses(m.Hive), Closed: map[string]bool{}}
	for node, s := range o.Recorded {
		if recorded.Removing(node) {
			s.Created = nil
			o.Recorded[node] = s
		}
	}
	open := hypervisorsOf(m.Hive)
	for name := range where {
		_, isOpen := open[name]
		o.Closed[name] = !isOpen
	}
	return o
}

// clusterIdentity returns the cluster's name and id, which mark the cluster's machines on hypervisors. Before the first
// apply the state has no id, and clusterIdentity returns a random id that no machine is marked with.
func (m *Manager) clusterIdentity(recorded *state.State) provider.Cluster {
	c := recorded.Cluster
	if c == nil {
		c = state.NewCluster()
	}
	return provider.Cluster{Name: m.Hive.ClusterName(), ID: c.ID}
}

// clusterNetwork returns the network in the hive. If desired is false, because the hive has no machines, it returns
// the recorded network.
func (m *Manager) clusterNetwork(recorded *state.State, desired bool) (provider.Network, error) {
	if !desired && recorded.Cluster != nil {
		return recorded.Cluster.Network, nil
	}
	return desiredNetwork(m.Hive)
}

// hypervisorsOf returns the hypervisors of the hive.
func hypervisorsOf(hive *nixeval.Hive) map[string]provider.Hypervisor {
	out := map[string]provider.Hypervisor{}
	if hive.Cluster != nil {
		for name, h := range hive.Cluster.Hypervisors {
			out[name] = provider.Hypervisor(h)
		}
	}
	return out
}

// hypervisorConfigs returns the recorded hypervisors, because they may have machines of the cluster. If desired is set,
// because the hive has machines, it also returns the hypervisors in the hive.
func (m *Manager) hypervisorConfigs(recorded *state.State, desired bool) map[string]provider.Hypervisor {
	out := map[string]provider.Hypervisor{}
	if recorded.Cluster != nil {
		maps.Copy(out, recorded.Cluster.Hypervisors)
	}
	if desired {
		maps.Copy(out, hypervisorsOf(m.Hive))
	}
	return out
}

// findImagesToCompare returns the keys of the images of those selected nodes that have a machine. The plan compares
// each image with the image that the machine was created from, and recreates the machine if they differ.
func findImagesToCompare(all []changes.Desired, inventories map[string]provider.Inventory, o changes.Options) []image.Key {
	roles := map[string]string{}
	for _, w := range all {
		if o.Selected == nil || o.Selected(w.Node) {
			roles[w.Node] = w.Role
		}
	}
	var out []image.Key
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		for _, f := range inventories[name].Machines {
			key := image.Key{Role: roles[f.Node], Kind: inventories[name].Kind}
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
			return &changes.PlanError{
				Text: fmt.Sprintf("%s: its machine is not on hypervisor %s, whose URI was %s and is %s now", node, s.Hypervisor, old.URI, now.URI),
				Fix:  "give the new host its own name in cluster.hypervisors; or restore the old URI, and remove the machine first: nixbench destroy --on " + node,
			}
		}
	}
	return nil
}

// validatePools returns an error if the hive names another pool for a hypervisor that has machines.
// Without this error nixbench would not find the machines' disks in the new pool, and would recreate the machines.
func (m *Manager) validatePools(where map[string]provider.Hypervisor, recorded *state.State) error {
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		s := recorded.Machines[node]
		if s.Image == nil || recorded.Cluster == nil {
			continue
		}
		if old, now := recorded.Cluster.Hypervisors[s.Hypervisor], where[s.Hypervisor]; old.Pool != now.Pool {
			return &changes.PlanError{
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
	old, now := recorded.Cluster.Network, wanted
	if !wanted.Mode.Ours() { // nixbench does not configure the domain of a network that it does not manage
		old.Domain, now.Domain = "", ""
	}
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		if recorded.Machines[node].Created != nil && old != now {
			return &changes.PlanError{
				Text: fmt.Sprintf("%s and perhaps others are on network %s, and the hive sets network %s", node, old, now),
				Fix:  "restore cluster.network, or recreate the cluster: nixbench destroy, then nixbench apply",
			}
		}
	}
	return nil
}
