package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	conditions := e.Pool.Conditions(o, "slurmctld answers", e.checkController, "idle or running jobs")
	if name := e.accountingNode(); name != "" {
		conditions = append(conditions, check.Condition{Name: "slurmdbd answers", Every: engine.PollInterval, Probe: e.checkAccounting, Explain: func(ctx context.Context) string {
			return e.Explain(ctx, []string{name}, func(string) string { return accountingUnit })
		}})
	}
	if o.Deep && len(e.NodesOf(Compute)) > 0 {
		job := e.newJob([]string{"sbatch", "--wait", "--output=/dev/null"})
		job.Stdin = batchScript
		conditions = append(conditions, e.DeepCondition("srun runs on", e.newJob([]string{"srun", "--immediate=20"}, "true")), e.DeepCondition("a batch job runs srun on", job))
	}
	return conditions
}

func (e *Engine) checkController(ctx context.Context) error {
	out, err := e.RunOnHead(ctx, "scontrol", "ping")
	switch {
	case err != nil:
		return engine.LastLine(err)
	case !strings.Contains(out, "is UP"):
		return errors.New(strings.TrimSpace(out))
	}
	return nil
}

// newJob returns a test job with one task on each compute node. The command line is command, then the options of the job, then program.
func (e *Engine) newJob(command []string, program ...string) batch.Job {
	nodes, name := e.jobNodes(), batch.NewJobName()
	command = append(command, "--job-name="+name, "--chdir=/", "--time=2", "--nodes="+strconv.Itoa(len(nodes)), "--ntasks-per-node=1", "--nodelist="+strings.Join(nodes, ","))
	return batch.Job{Command: append(command, program...), Cancel: []string{"scancel", "--quiet", "--name=" + name}}
}

// batchScript is the script of a batch job. It fails unless srun works within the job on each node of the job. It is a test of its own
// because SLURM sets SLURM_CONF in a batch job, so that wrappers of the commands may behave differently than in a login shell.
const batchScript = `#!/bin/sh
[ "$(srun --ntasks-per-node=1 printenv SLURMD_NODENAME | sort -u | wc -l)" = "$SLURM_JOB_NUM_NODES" ]
`

// WaitReady implements [engine.Engine]. A compute node is ready when its slurmd has registered after its last start. The
// controller is ready when slurmctld answers, and the node with slurmdbd when slurmdbd answers.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	return engine.AwaitReady(ctx, name, report, func(ctx context.Context) error { return e.checkReady(ctx, name) },
		func(ctx context.Context) string { return e.ReadLog(ctx, name, e.UnitOf(name)) })
}

// checkReady returns nil if the node works, or if it does not belong to the cluster.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	if name == e.FirstOf(Accounting) {
		return engine.Inspect(ctx, e, name, true)
	}
	nodes, err := e.Nodes(ctx)
	n, isMember := nodes[name]
	switch {
	case err != nil:
		return err
	case name == e.Node():
		return nil
	case !isMember && e.Member(name).Role != Compute:
		return nil
	case !isMember:
		return errors.New("it has not registered with the controller")
	case !n.isReady() && !n.isSetDown():
		return errors.New("it is " + n.describe())
	}
	return e.checkRegistered(ctx, name, n)
}

// checkRegistered returns an error unless the slurmd of the node runs and has registered since its start. It does not rely on the state
// in SLURM: the controller reports a node as idle for minutes after its slurmd has died. Both times are from the clock of the node.
func (e *Engine) checkRegistered(ctx context.Context, name string, n node) error {
	unit, err := e.ReadUnit(ctx, name, "slurmd.service")
	switch {
	case err != nil:
		return err
	case unit.Sub != "running":
		return fmt.Errorf("its slurmd is %s", unit.Sub)
	}
	if n.slurmdStart().Before(unit.Since) {
		return errors.New("its slurmd has not registered since it was started")
	}
	return nil
}

// FindFaults implements [engine.Inspector]. If the node's systemd units run, FindFaults also tests whether MUNGE accepts messages from the
// controller.
func (e *Engine) FindFaults(ctx context.Context, name string) ([]engine.Fault, error) {
	faults, err := e.Cluster.FindFaults(ctx, name, e.units(name)...)
	if err == nil && len(faults) == 0 && e.UnitOf(name) != "" {
		if problem := e.checkMunge(ctx, name); problem != "" {
			faults = append(faults, engine.Fault{Unit: mungeUnit, State: problem, Lasts: true})
		}
	}
	return faults, err
}

// checkMunge describes why the munged of a node does not accept a message that the munged of the controller has signed, or
// returns an empty string. The check is needed because slurmctld reports a node with another MUNGE key as idle for minutes.
func (e *Engine) checkMunge(ctx context.Context, name string) string {
	controller := e.Node()
	if controller == "" || controller == name {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, engine.CommandTimeout)
	defer cancel()
	credential, err := e.Command(ctx, controller, "munge", "--no-input", "--restrict-uid=0")
	if err != nil {
		return fmt.Sprintf("has nothing to accept, because munged of %s signs nothing: %v", controller, engine.LastLine(err))
	}
	if _, err := e.Run(ctx, name, bytes.NewReader(credential), "unmunge"); err != nil {
		return fmt.Sprintf("does not accept what munged of %s has signed, so they have different keys, or their clocks differ; run nixbench apply: %v", controller, engine.LastLine(err))
	}
	return ""
}

// units returns the systemd units that SLURM needs on a node of the hive, in the order in which they start.
func (e *Engine) units(name string) []string {
	unit := e.UnitOf(name)
	switch {
	case unit == "":
		return nil
	case name == e.accountingNode() && unit != accountingUnit:
		return []string{mungeUnit, databaseUnit, accountingUnit, unit}
	case unit == accountingUnit:
		return []string{mungeUnit, databaseUnit, unit}
	}
	return []string{mungeUnit, unit}
}

const (
	mungeUnit      = "munged.service"
	databaseUnit   = "mysql.service"
	accountingUnit = "slurmdbd.service" // the systemd unit becomes active when slurmdbd answers
)

// UnitOf implements [batch.System]. It returns the systemd unit of SLURM's daemon on a node of the hive.
func (c *client) UnitOf(name string) string {
	return map[string]string{Controller: "slurmctld.service", Compute: "slurmd.service", Accounting: accountingUnit}[c.Member(name).Role]
}
