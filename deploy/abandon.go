package deploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// Forgotten is the outcome of giving up a machine that is on a hypervisor which is gone.
const Forgotten state.Outcome = "forgotten"

// Abandon finds the machines that a hypervisor had which is gone for good. No hypervisor is asked, and
// nothing will be removed there.
func (m *Machines) PlanAbandon(recorded *state.State, hypervisor string) *DestroyPlan {
	d := &DestroyPlan{abandoned: hypervisor, WholeCluster: true}
	for _, node := range sortedKeys(recorded.Machines) {
		s := recorded.Machines[node]
		if s.Hypervisor != hypervisor {
			d.WholeCluster = false
			continue
		}
		one := removal{Node: node, Role: s.Role, Hypervisor: hypervisor, note: "its host key is given up"}
		if s.Address.IsValid() {
			one.note = "its address " + s.Address.String() + " and its host key are given up"
		}
		d.Removals = append(d.Removals, one)
	}
	sortByNode(d.Removals)
	d.Remaining = m.describeRemaining(recorded, d)
	return d
}

// left is what stays on a hypervisor that is forgotten, should it come back.
func (m *Machines) describeRemaining(recorded *state.State, d *DestroyPlan) []string {
	if len(d.Removals) == 0 {
		return nil
	}
	h := recorded.Cluster.Hypervisors[d.abandoned]
	var domains, keys []string
	for _, one := range d.Removals {
		domains = append(domains, m.cluster(recorded).Domain(one.Node))
		for _, n := range m.Hive.Nodes {
			if n.Name == one.Node {
				keys = append(keys, sortedKeys(m.Hive.Unit(n.Unit).Deployment.Keys)...)
			}
		}
	}
	out := []string{fmt.Sprintf("left on %s, at %s: %s, with their disks in pool %s", d.abandoned, h.URI, strings.Join(domains, ", "), h.Pool)}
	if n := recorded.Cluster.Network; provision.Mode(n.Mode).Ours() {
		out[0] += ", and network " + n.Name
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		out = append(out, "whoever has their disks may have these keys: "+strings.Join(slices.Compact(keys), ", "))
	}
	return out
}

// forget has nobody look for the hypervisor any more. The facts are then those of the rest.
func (w *destroyer) abandonHypervisor(hypervisor string) error {
	if err := w.Store.Update(func(s *state.State) error { delete(s.Cluster.Hypervisors, hypervisor); return nil }); err != nil {
		return err
	}
	return w.writeFacts(w.Store.State())
}

// forgettable adds to errors about hypervisors that do not answer how one is given up, if it may have
// machines of ours.
func addAbandonHint(err error, recorded *state.State) error {
	if recorded.Cluster == nil {
		return err
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, addAbandonHint(one, recorded))
		}
		return errors.Join(all...)
	case *provision.Error:
		if _, ours := recorded.Cluster.Hypervisors[e.Hypervisor]; ours && errors.Is(e, provision.ErrGone) {
			with := *e
			with.Fix += fmt.Sprintf("; if it is gone for good, take it out of cluster.hypervisors, then: nixbench destroy --forget-hypervisor %s", e.Hypervisor)
			with.Fix = strings.TrimPrefix(with.Fix, "; ")
			return &with
		}
	}
	return err
}
