package slurm

import (
	"context"
	"errors"
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
		conditions = append(conditions, e.DeepCondition("srun runs on", e.checkSrun), e.DeepCondition("a batch job runs srun on", e.checkBatch))
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

func (e *Engine) checkSrun(ctx context.Context) error {
	return e.CheckHosts(ctx, e.newJob([]string{"srun", "--immediate=20"}, "printenv", "SLURMD_NODENAME"), "srun", e.jobNodes())
}

// batchScript is the script of a batch job. It fails unless srun works within the job on each node of the job. It is a test of its own
// because SLURM sets SLURM_CONF in a batch job, so that wrappers of the commands may behave differently than in a login shell.
const batchScript = `#!/bin/sh
[ "$(srun --ntasks-per-node=1 printenv SLURMD_NODENAME | sort -u | wc -l)" = "$SLURM_JOB_NUM_NODES" ]
`

// checkBatch returns nil if a batch job that calls srun succeeds.
func (e *Engine) checkBatch(ctx context.Context) error {
	job := e.newJob([]string{"sbatch", "--wait", "--output=/dev/null"})
	job.Stdin = batchScript
	_, err := e.RunJob(ctx, job)
	return err
}
