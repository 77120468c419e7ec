package deploy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
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

// RotateSecret generates a new value for a secret. If the secret is a key ring, which is changed in several steps, it carries out
// the next step of its rotation.
func (s *Session) RotateSecret(ctx context.Context, name string) (vault.Step, error) {
	return s.Machines.Vault.Rotate(name, func(sum string) error {
		if len(s.Hive.Broken) > 0 { // nodes that cannot be evaluated may need the new version of the secret, too
			return &nixeval.EvalError{Units: s.Hive.Broken}
		}
		engines, err := s.Engines()
		if err != nil {
			return err
		}
		return checkKeyDistributed(ctx, engines, name, sum)
	})
}

// checkKeyDistributed returns an error unless all nodes that share encrypted data use the new version of a key ring. name is the
// name of the key ring, and sum is the checksum of its new version.
func checkKeyDistributed(ctx context.Context, engines []engine.Engine, name, sum string) error {
	for _, e := range engines {
		holder, ok := e.(engine.Keyholder)
		if !ok {
			continue
		}
		without, err := holder.MembersWithout(ctx, name, sum)
		hint := "run it again when the cluster answers"
		switch {
		case err != nil:
			err = fmt.Errorf("%s: cannot determine which nodes have its new key: %w", name, err)
		case len(without) > 0:
			err = errors.New(name + ": its new key cannot be activated, because these nodes do not run with it: " + strings.Join(without, ", "))
			hint = "run nixbench apply, which uploads it, then run this again"
		default:
			continue
		}
		return failure.WithHint(failure.WithKind(failure.Cluster, err), hint)
	}
	return nil
}
