package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// jobOptions returns the options of a job with one task on each compute node.
func (e *Engine) jobOptions(job string) []string {
	nodes := e.jobNodes()
	return []string{"--job-name=" + job, "--chdir=/", "--time=2", "--nodes=" + strconv.Itoa(len(nodes)),
		"--ntasks-per-node=1", "--nodelist=" + strings.Join(nodes, ",")}
}

// checkSrun returns nil if srun starts a task on each compute node.
func (e *Engine) checkSrun(ctx context.Context) error {
	job := batch.NewCheckJob()
	argv := append([]string{"srun", "--immediate=20"}, e.jobOptions(job)...)
	out, err := e.runJob(ctx, job, "", append(argv, "printenv", "SLURMD_NODENAME")...)
	if err != nil {
		return err
	}
	got, want := strings.Fields(out), slices.Sorted(slices.Values(e.jobNodes()))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("srun ran on %q, want %q", got, want)
	}
	return nil
}

// batchScript fails unless srun works within a batch job, on each node of the job. SLURM_CONF is set there, so
// wrappers of the commands may behave differently than in a login.
const batchScript = `#!/bin/sh
[ "$(srun --ntasks-per-node=1 printenv SLURMD_NODENAME | sort -u | wc -l)" = "$SLURM_JOB_NUM_NODES" ]
`

// checkBatch returns nil if a batch job that calls srun succeeds.
func (e *Engine) checkBatch(ctx context.Context) error {
	job := batch.NewCheckJob()
	argv := append([]string{"sbatch", "--wait", "--output=/dev/null"}, e.jobOptions(job)...)
	_, err := e.runJob(ctx, job, batchScript, argv...)
	return err
}

// asNobody runs a command as the user nobody, because slurmctld refuses jobs of root (DisableRootJobs).
var asNobody = []string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}

// runJob runs a command that waits for the job of this name. If it fails, the job is cancelled.
func (e *Engine) runJob(ctx context.Context, job, stdin string, argv ...string) (string, error) {
	controller := e.controller()
	if controller == "" {
		return "", errNoController
	}
	out, err := e.Run(ctx, controller, strings.NewReader(stdin), append(slices.Clone(asNobody), argv...)...)
	if err == nil {
		return string(out), nil
	}
	text := batch.LastLine(err)
	if ctx.Err() != nil {
		text = argv[0] + ": the job has not ended in time; on the controller: squeue"
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := e.runOnController(late, "scancel", "--quiet", "--name="+job); err != nil {
		text += "; its job cannot be cancelled: " + batch.LastLine(err)
	}
	return "", errors.New(text)
}
