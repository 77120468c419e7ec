package deploy

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// DestroyRequest says which machines [Session.Destroy] removes, and how.
type DestroyRequest struct {
	stages.Options
	Machines selection.Selector // selects among all machines that exist, also those of nodes that the hive no longer contains
	Forget   string             // the lost hypervisor whose machines are abandoned; empty: none

	Ask func(*machine.DestroyPlan) error // asks the user to confirm removals; nil: does not ask
}

// Destroy removes machines, and returns the plan that it has carried out. The plan is nil if nixbench has booted no machine of the
// cluster.
func (s *Session) Destroy(ctx context.Context, r DestroyRequest) (done *machine.DestroyPlan, results []state.NodeResult, err error) {
	recorded, err := s.State()
	if err != nil {
		return nil, nil, err
	}
	if recorded.Cluster == nil {
		return nil, []state.NodeResult{}, nil
	}
	if err := checkForget(r.Forget, s.Hive, recorded); err != nil {
		return nil, nil, err
	}
	err = s.withRecord(ctx, func(d *stages.Deployer) error {
		if r.Forget != "" {
			done = s.Machines.PlanAbandon(d.Store.State(), r.Forget)
		} else {
			var selectNodes func([]nixeval.Node) ([]nixeval.Node, error)
			if !r.Machines.All() {
				selectNodes = func(nodes []nixeval.Node) ([]nixeval.Node, error) {
					return r.Machines.Select(&nixeval.Hive{Nodes: nodes})
				}
			}
			if done, err = s.Machines.PlanDestroy(ctx, d.Store.State(), selectNodes); err != nil {
				return err
			}
		}
		defer done.Close()
		if r.Ask != nil && len(done.Removals) > 0 {
			if err := r.Ask(done); err != nil {
				return err
			}
		}
		results, err = d.Destroy(ctx, done, r.Options)
		return err
	})
	return done, results, err
}

// checkForget returns an error unless name is a lost hypervisor whose machines nixbench may forget. The state must contain
// machines or other objects of the cluster on this hypervisor. The hive must not contain the hypervisor, because the next apply
// would connect to it.
func checkForget(name string, hive *nixeval.Hive, recorded *state.State) error {
	if name == "" {
		return nil
	}
	if _, ok := recorded.Cluster.Hypervisors[name]; !ok {
		return failure.WithHint(failure.NewUsage("--forget-hypervisor %s: nixbench has created nothing on it", name),
			"this cluster has objects on "+strings.Join(slices.Sorted(maps.Keys(recorded.Cluster.Hypervisors)), ", "))
	}
	if hive.Cluster != nil && len(hive.Nodes) > 0 {
		if _, named := hive.Cluster.Hypervisors[name]; named {
			return failure.WithHint(failure.NewUsage("--forget-hypervisor %s: the hive still contains it", name), "remove it from cluster.hypervisors first")
		}
	}
	return nil
}
