package slurm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// admitTimeout is the time limit for the answer of a controller that has just been deployed.
const admitTimeout = 30 * time.Second

// restartScript restarts slurmd, because slurmd registers when it starts. A slurmd that was started in the last 15 seconds is not
// restarted.
const restartScript = `since=$(systemctl show --timestamp=unix --property=ActiveEnterTimestamp --value slurmd.service)
since=${since#@}
[ $(($(date +%s) - ${since:-0})) -lt 15 ] || systemctl restart slurmd.service`

// Admit implements [engine.Admitter]. slurmd and slurmctld register only when they start. A controller that was recreated has lost its
// list of nodes. So for a compute node that is not registered, Admit restarts slurmd; for the controller, it does so on all such nodes of
// the hive. The jobs of these nodes continue. For a recreated node with slurmdbd, Admit restarts slurmctld, which then registers with the
// new database. Admit also ends the drain that [Engine.RemoveMember] has left on a node of a static list in slurm.conf.
func (e *Engine) Admit(ctx context.Context, name string) error {
	var nodes []string
	switch {
	case name == e.FirstOf(Accounting):
		return e.admitAccounting(ctx)
	case name == e.Node():
		nodes = e.NodesOf(Compute)
	case e.Member(name).Role == Compute:
		nodes = []string{name}
	default:
		return nil
	}
	registered, err := await(ctx, e.Nodes)
	if errors.Is(err, batch.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	if n := registered[name]; n.IsDrainedByUs() && n["Reason"] == removedReason {
		if err := e.undrain(ctx, registered, []string{name}); err != nil {
			return err
		}
	}
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return registered[n] != nil })
	err = fleet.ForAll(nodes, func(node string) error {
		_, err := e.Command(ctx, node, "sh", "-c", restartScript)
		return err
	})
	if name == e.Node() {
		return nil // no error if nodes are missing: they may not have booted yet, and the check at the end of a run reports them
	}
	return err
}

// await repeats ask until the controller or slurmdbd answers, or until ask says that the cluster does not exist yet.
func await[T any](ctx context.Context, ask func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	isTemporary := func(err error) bool { return !errors.Is(err, batch.ErrAbsent) }
	err = engine.Retry(ctx, admitTimeout, isTemporary, func() (err error) { answer, err = ask(ctx); return err })
	return answer, err
}
