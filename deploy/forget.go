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
func (m *Machines) Abandon(known *state.State, hypervisor string) *Doom {
	d := &Doom{gone: hypervisor, Whole: true}
	for _, node := range sortedKeys(known.Machines) {
		s := known.Machines[node]
		if s.Hypervisor != hypervisor {
			d.Whole = false
			continue
		}
		one := doomed{Node: node, Role: s.Role, Hypervisor: hypervisor, note: "its host key is given up"}
		if s.Address.IsValid() {
			one.note = "its address " + s.Address.String() + " and its host key are given up"
		}
		d.List = append(d.List, one)
	}
	byNode(d.List)
	d.Left = m.left(known, d)
	return d
}

// left is what stays on a hypervisor that is forgotten, should it come back.
func (m *Machines) left(known *state.State, d *Doom) []string {
	if len(d.List) == 0 {
		return nil
	}
	h := known.Cluster.Hypervisors[d.gone]
	var domains, keys []string
	for _, one := range d.List {
		domains = append(domains, m.clusterIdentity(known).Domain(one.Node))
		for _, n := range m.Hive.Nodes {
			if n.Name == one.Node {
				keys = append(keys, sortedKeys(m.Hive.Unit(n.Unit).Deployment.Keys)...)
			}
		}
	}
	out := []string{fmt.Sprintf("left on %s, at %s: %s, with their disks in pool %s", d.gone, h.URI, strings.Join(domains, ", "), h.Pool)}
	if n := known.Cluster.Network; provision.Mode(n.Mode).Ours() {
		out[0] += ", and network " + n.Name
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		out = append(out, "whoever has their disks may have these keys: "+strings.Join(slices.Compact(keys), ", "))
	}
	return out
}

// forget has nobody look for the hypervisor any more. The facts are then those of the rest.
func (w *wrecker) forget(hypervisor string) error {
	if err := w.Store.Update(func(s *state.State) error { delete(s.Cluster.Hypervisors, hypervisor); return nil }); err != nil {
		return err
	}
	return w.facts(w.Store.State())
}

// forgettable adds to errors about hypervisors that do not answer how one is given up, if it may have
// machines of ours.
func forgettable(err error, known *state.State) error {
	if known.Cluster == nil {
		return err
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, forgettable(one, known))
		}
		return errors.Join(all...)
	case *provision.Error:
		if _, ours := known.Cluster.Hypervisors[e.Hypervisor]; ours && errors.Is(e, provision.ErrGone) {
			with := *e
			with.Fix += fmt.Sprintf("; if it is gone for good, take it out of cluster.hypervisors, then: nixbench destroy --forget-hypervisor %s", e.Hypervisor)
			with.Fix = strings.TrimPrefix(with.Fix, "; ")
			return &with
		}
	}
	return err
}
