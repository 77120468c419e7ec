package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

type OpenPlan struct {
	changes.Plan
	observed
	hypervisors map[string]provider.Hypervisor
	images      map[changes.ImageKey]provider.Image // images that MakePlan has already loaded, so that Start does not load them again
	clientKey   keys.Key                            // SSH key that logs in to the machines; created when the plan is recorded
}

func (plan *OpenPlan) Close() { plan.hosts.close() }

// MakePlan surveys the hypervisors and plans the changes to the machines of the selected nodes. If selected is nil, the
// plan is for all nodes. Only a plan for all nodes removes machines.
func (m *Manager) MakePlan(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*OpenPlan, error) {
	net, err := clusterNetwork(m.Hive, recorded)
	if err != nil {
		return nil, err
	}
	plan := &OpenPlan{hypervisors: allHypervisors(m.Hive, recorded)}
	if plan.observed, err = m.observeHypervisors(ctx, recorded, plan.hypervisors, net); err != nil {
		return nil, err
	}
	if err := m.decideChanges(ctx, plan, desiredMachines(m.Hive), recorded, selected, recreate); err != nil {
		plan.Close()
		return nil, err
	}
	return plan, nil
}

func (m *Manager) decideChanges(ctx context.Context, plan *OpenPlan, all []changes.Desired, recorded *state.State, selected []nixeval.Node, recreate bool) error {
	if err := validateUnchanged(plan, recorded); err != nil {
		return err
	}
	o := changes.Options{
		Cluster: plan.cluster, Network: plan.network, Recorded: maps.Clone(recorded.Machines), Fixed: fixedAddresses(m.Hive),
		Closed: map[string]bool{}, Recreate: recreate,
	}
	for node, s := range o.Recorded {
		if recorded.HasIntent(node, state.RemoveMachine) {
			s.Created = nil
			o.Recorded[node] = s
		}
	}
	for name := range plan.hypervisors {
		isOpen := false
		if m.Hive.Cluster != nil {
			_, isOpen = m.Hive.Cluster.Hypervisors[name]
		}
		o.Closed[name] = !isOpen
	}
	if selected != nil {
		o.Selected = func(node string) bool {
			return slices.ContainsFunc(selected, func(n nixeval.Node) bool { return n.Name == node })
		}
	}
	var err error
	if recreate {
		if plan.images, err = m.loadImages(ctx, findImagesToCompare(all, plan.inventories, o)); err != nil {
			return err
		}
		o.Images = plan.images
	}
	if plan.Plan, err = changes.Make(all, plan.inventories, o); err != nil {
		return err
	}
	return m.preflight(ctx, plan)
}

// clusterIdentity returns the cluster's name and id, which mark the cluster's machines on hypervisors. Before the first
// apply the state has no id, and clusterIdentity returns a random id that no machine is marked with.
func clusterIdentity(hive *nixeval.Hive, recorded *state.State) provider.Cluster {
	c := recorded.Cluster
	if c == nil {
		c = state.NewCluster()
	}
	return provider.Cluster{Name: hive.ClusterName(), ID: c.ID}
}

// clusterNetwork returns the network in the hive, or the recorded network if the hive has no machines.
func clusterNetwork(hive *nixeval.Hive, recorded *state.State) (provider.Network, error) {
	if recorded.Cluster != nil && len(Booted(hive, hive.Nodes)) == 0 {
		return recorded.Cluster.Network, nil
	}
	return desiredNetwork(hive)
}

// allHypervisors returns the recorded hypervisors, because they may have machines of the cluster, and those in the hive if it has machines.
func allHypervisors(hive *nixeval.Hive, recorded *state.State) map[string]provider.Hypervisor {
	out := map[string]provider.Hypervisor{}
	if recorded.Cluster != nil {
		maps.Copy(out, recorded.Cluster.Hypervisors)
	}
	if len(Booted(hive, hive.Nodes)) > 0 {
		for name, h := range hive.Cluster.Hypervisors {
			out[name] = provider.Hypervisor(h)
		}
	}
	return out
}

// findImagesToCompare returns the keys of the images of the selected nodes. The plan compares each image with the image that the machine was
// created from, and recreates the machine if they differ.
func findImagesToCompare(all []changes.Desired, inventories map[string]provider.Inventory, o changes.Options) []changes.ImageKey {
	var out []changes.ImageKey
	for _, w := range all {
		for _, name := range slices.Sorted(maps.Keys(inventories)) {
			key := changes.ImageKey{Role: w.Role, Kind: inventories[name].Kind}
			exists := slices.ContainsFunc(inventories[name].Machines, func(f provider.Actual) bool { return f.Node == w.Node })
			if exists && (o.Selected == nil || o.Selected(w.Node)) && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// validateUnchanged returns an error if the hive changes the network, or the URI or the pool of a hypervisor, that a recorded machine
// uses. nixbench cannot change a network while machines use it. With another URI or pool, it would not find the machine or its disks, and
// would create the machine a second time.
func validateUnchanged(plan *OpenPlan, recorded *state.State) error {
	if recorded.Cluster == nil {
		return nil
	}
	oldNet, net := recorded.Cluster.Network, plan.network
	if !net.Mode.Ours() { // nixbench does not configure the domain of a network that it does not manage
		oldNet.Domain, net.Domain = "", ""
	}
	for _, node := range nixeval.SortedNames(recorded.Machines) {
		s := recorded.Machines[node]
		old, now := recorded.Cluster.Hypervisors[s.Hypervisor], plan.hypervisors[s.Hypervisor]
		found := slices.ContainsFunc(plan.inventories[s.Hypervisor].Machines, func(f provider.Actual) bool { return f.Node == node })
		switch {
		case s.Created != nil && oldNet != net:
			return changes.NewPlanError("restore cluster.network, or recreate the cluster: nixbench destroy, then nixbench apply",
				"%s and perhaps others are on network %s, and the hive sets network %s", node, oldNet, net)
		case s.Image != nil && (old.Pool != now.Pool || old.URI != now.URI && !found):
			fix := fmt.Sprintf("restore cluster.hypervisors.%s; or add another entry for the new place, and remove the machine first: "+
				"nixbench destroy --on %s", s.Hypervisor, node)
			return changes.NewPlanError(fix, "%s: its machine is on hypervisor %s at %s in the pool %s, and the hive sets %s and the pool %s",
				node, s.Hypervisor, old.URI, old.Pool, now.URI, now.Pool)
		}
	}
	return nil
}

// preflight checks, before any machine is created, that the images in the hive exist and that the hypervisors can run
// the planned machines. If several machines have the same error, it reports the error once.
func (m *Manager) preflight(ctx context.Context, plan *OpenPlan) error {
	var errs []error
	for _, c := range plan.Changes {
		if c.Action == changes.Remove || c.Action == changes.Keep {
			continue
		}
		var disk provider.Image
		var err error
		if c.Creates() {
			disk, err = m.findImage(c.Role)
		}
		if err == nil {
			err = plan.hosts[c.Hypervisor].Check(ctx, plan.Cluster, plan.Network, c.Spec(disk, provider.Identity{}))
			err = wrapHypervisorError(err, c.Hypervisor, "check "+c.Node)
		}
		if err != nil && !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
