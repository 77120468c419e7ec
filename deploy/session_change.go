package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// PlanRollback returns what a rollback does with each selected node. to is the number of a generation or the name of a run. If to
// is empty, the target is the systems before the last run that changed one of the nodes. A name of a run begins with a date, and
// no generation has as many digits as a date.
func (s *Session) PlanRollback(ctx context.Context, to string) ([]stages.Step, error) {
	s.noteAway()
	var target stages.RollbackTo
	n, err := strconv.Atoi(to)
	switch {
	case to == "":
	case err == nil && len(to) < len("20060102") && n < 1:
		return nil, failure.NewUsage("--to must be at least 1 (it is %s), or a run", to)
	case err == nil && len(to) < len("20060102"):
		target.Generation = n
	default:
		if target.Run, err = runs.Open(s.Dir, to); err != nil {
			return nil, failure.NewUsage("--to: %w", err)
		}
	}
	recorded, err := s.State()
	if err != nil {
		return nil, err
	}
	return stages.PlanRollback(s.Nodes, s.awayNames(), recorded.Nodes, target, func(nodes []nixeval.Node) []fleet.Outcome[activate.Node] {
		return inspect.Nodes(ctx, s.Fleet, nodes, s.request.Parallel, s.Send)
	})
}

func (s *Session) Execute(ctx context.Context, steps []stages.Step, o stages.Options) (results []state.NodeResult, err error) {
	err = s.withRecord(ctx, func(d *stages.Deployer) error {
		results, err = d.ExecuteSteps(ctx, steps, o)
		results = append(results, s.Away...)
		return err
	})
	return results, err
}

// ChangePower calls change, a method of [machine.Power] that starts or stops the machines of the selected nodes. Before, ask asks
// the user to confirm.
func (s *Session) ChangePower(ctx context.Context, o machine.PowerOptions, ask func(*machine.Power) error,
	change func(*machine.Power, context.Context, []nixeval.Node, *runs.Recorder, machine.PowerOptions) ([]state.NodeResult, error),
) (results []state.NodeResult, err error) {
	err = s.withRecord(ctx, func(d *stages.Deployer) error {
		power, err := s.Machines.OpenPower(ctx, s.Fleet, d.Store.State())
		if err != nil {
			return err
		}
		defer power.Close()
		power.AfterBoot = d.UploadVolatileKeys
		if err := ask(power); err != nil {
			return err
		}
		results, err = change(power, ctx, s.Nodes, d.Record, o)
		return err
	})
	return results, err
}

// RotateSecret generates a new value for a secret, or carries out the next step of the rotation of a key ring.
func (s *Session) RotateSecret(ctx context.Context, name string) (vault.Step, error) {
	return s.Machines.Vault.Rotate(name, func(sum string) error {
		if len(s.Hive.Broken) > 0 { // nodes that cannot be evaluated may need the new version of the secret, too
			return &nixeval.EvalError{Units: s.Hive.Broken}
		}
		engines, err := s.Engines()
		if err != nil {
			return err
		}
		for _, e := range engines { // all nodes that share encrypted data must use the key ring with this checksum
			holder, ok := e.(engine.Keyholder)
			if !ok {
				continue
			}
			without, err := holder.MembersWithout(ctx, name, sum)
			hint := "run this again when the cluster answers"
			if len(without) > 0 {
				hint = "run nixbench apply, which uploads it, then run this again"
				err = errors.New("these nodes do not run with it: " + strings.Join(without, ", "))
			}
			if err != nil {
				return failure.WithHint(failure.WithKind(failure.Cluster, fmt.Errorf("%s: its new key cannot be activated: %w", name, err)), hint)
			}
		}
		return nil
	})
}

// DestroyRequest says which machines [Session.Destroy] removes, and how.
type DestroyRequest struct {
	stages.Options
	Machines selection.Selector // selects among all machines that exist, also those of nodes that the hive no longer contains
	Forget   string             // the lost hypervisor whose machines are abandoned; empty: none

	Ask func(*machine.DestroyPlan) error // asks the user to confirm removals; nil: does not ask
}

// Destroy removes machines, and returns the plan that it has carried out; nil if nixbench has booted no machine of the cluster.
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

// Reserve records in the state the addresses and the host keys of the hive's machines, as [Session.Apply] does before it creates
// the machines. So the facts about a machine are known before the machine exists.
func (s *Session) Reserve(ctx context.Context) error {
	mode := provider.Mode(s.Hive.Cluster.Network.Mode)
	if !mode.Ours() {
		return failure.WithHint(failure.NewUsage("the addresses in a network of mode %s are known only when machines run", mode),
			"use a network that nixbench manages (cluster.network.mode = \"nat\" or \"isolated\"), so that all systems can be built before a machine exists")
	}
	return s.withRecord(ctx, func(d *stages.Deployer) error {
		plan, err := s.Machines.MakePlan(ctx, d.Store.State(), nil, false)
		if err != nil {
			return err
		}
		defer plan.Close()
		starter := &machine.Starter{Manager: s.Machines, Store: d.Store, RunID: d.RunID}
		return starter.AskAndRecord(plan, d.Record, false)
	})
}
