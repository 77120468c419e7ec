package machine

import (
	"reflect"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// AskAndRecord asks the user to confirm the changes that stop running machines, and writes the plan to the run's record and to the
// state. If whole is set, the plan is for all nodes, and AskAndRecord also removes stale records (see findStaleRecords).
func (s *Starter) AskAndRecord(plan *OpenPlan, record *runs.Recorder, whole bool) error {
	changes := slices.DeleteFunc(slices.Clone(plan.Changes), func(c changes.Change) bool { return !c.Disturbs() })
	if len(changes) > 0 && s.Ask != nil {
		// End the phase before the question, so that the time until the answer is not part of it.
		s.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Text: "planned"})
		err := s.Ask(changes)
		if failure.KindOf(err) == failure.Declined {
			return err
		}
		s.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(plan.Changes) - len(removals(plan.Changes))})
		if err != nil {
			return err
		}
	}
	if err := record.WriteFile("plan.json", plan.Plan); err != nil {
		return err
	}
	if err := s.recordPlan(plan, whole); err != nil || !plan.AssignsAddresses() {
		return err
	}
	return s.WriteFacts(s.Store.State())
}

// recordPlan writes the cluster's id and the planned machines to the state, and creates the
// keys that are missing. The state is written before any machine is created, so that a later run finds every machine.
func (s *Starter) recordPlan(plan *OpenPlan, whole bool) error {
	if err := s.Dir.Create(); err != nil {
		return err
	}
	next := s.Store.State()
	if next.Cluster == nil {
		next.Cluster = &state.Cluster{ID: plan.Cluster.ID, Hypervisors: map[string]provider.Hypervisor{}}
	}
	next.Cluster.Network = plan.Network
	for _, p := range plan.Places {
		if p.Hypervisor != "" {
			next.Cluster.Hypervisors[p.Hypervisor] = plan.hypervisors[p.Hypervisor]
		}
		var err error
		if next.Machines[p.Node], err = s.recordPlace(plan, p, next.Machines[p.Node]); err != nil {
			return err
		}
	}
	var stale []string
	if whole {
		stale = findStaleRecords(plan, next)
	}
	for _, node := range stale {
		next.Removed(node)
	}
	if !reflect.DeepEqual(s.Store.State(), next) {
		if err := s.Store.Update(func(now *state.State) error { *now = *next; return nil }); err != nil {
			return err
		}
	}
	for _, node := range stale {
		if err := keys.RemoveHostKey(s.Dir, node); err != nil {
			return err
		}
	}
	var err error
	plan.clientKey, err = keys.MakeClientKey(s.Dir) // after the state, without which a client key means that the state was lost
	return err
}

func (s *Starter) recordPlace(plan *OpenPlan, p changes.Place, m state.Machine) (state.Machine, error) {
	m.MAC, m.Role = p.MAC, nodeOf(s.Hive, p.Node).Role
	if p.Address.IsValid() {
		m.Address = p.Address
	}
	c, hasChange := plan.ChangeOf(p.Node)
	if hasChange && c.Action != changes.Create {
		m.Hypervisor = p.Hypervisor
		if m.Created == nil && !c.Creates() { // a run was interrupted after it had created the machine
			when := time.Now().UTC()
			m.Created = &when
		}
	}
	// An existing machine keeps its host key. A new machine gets the key from the state folder.
	if m.Created == nil || m.HostKey == "" || hasChange && c.Creates() {
		key, err := keys.MakeHostKey(s.Dir, p.Node)
		if err != nil {
			return m, err
		}
		m.HostKey = key.Public
	}
	return m, nil
}

// findStaleRecords returns the recorded nodes that the hive no longer contains and whose machines no longer exist. When
// their records are removed, other machines may get the addresses of these nodes.
func findStaleRecords(plan *OpenPlan, recorded *state.State) []string {
	return slices.DeleteFunc(nixeval.SortedNames(recorded.Machines), func(node string) bool {
		return slices.ContainsFunc(plan.Places, func(p changes.Place) bool { return p.Node == node }) ||
			slices.ContainsFunc(plan.Changes, func(c changes.Change) bool { return c.Node == node })
	})
}

// nodeOf returns the node of the hive with this name, or a node with only this name if there is none.
func nodeOf(hive *nixeval.Hive, name string) nixeval.Node {
	if i := slices.IndexFunc(hive.Nodes, func(n nixeval.Node) bool { return n.Name == name }); i >= 0 {
		return hive.Nodes[i]
	}
	return nixeval.Node{Name: name, Unit: name, Tags: []string{}}
}
