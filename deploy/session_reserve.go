package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/stages"
)

// Reserve records in the state the addresses and the host keys of the hive's machines, as [Session.Apply] does before it creates
// the machines. So the facts about a machine are known before the machine exists.
func (s *Session) Reserve(ctx context.Context) error {
	mode := provider.Mode(s.Hive.Cluster.Network.Mode)
	unknown := failure.WithHint(failure.NewUsage("the addresses in a network of mode %s are known only when machines run", mode),
		"use a network that nixbench manages (cluster.network.mode = \"nat\" or \"isolated\"), so that all systems can be built before a machine exists")
	if !mode.Ours() { // before a hypervisor is asked, because no answer would help
		return unknown
	}
	return s.withRecord(ctx, func(d *stages.Deployer) error {
		plan, err := s.Machines.MakePlan(ctx, d.Store.State(), nil, false)
		if err != nil {
			return err
		}
		defer plan.Close()
		if !plan.AssignsAddresses() {
			return unknown
		}
		starter := &machine.Starter{Manager: s.Machines, Store: d.Store, RunID: d.RunID}
		return starter.AskAndRecord(plan, d.Record, false)
	})
}
