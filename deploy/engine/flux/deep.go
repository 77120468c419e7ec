package flux

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

const deepTimeout = 2 * time.Minute

// asOwner begins a command that runs as the owner of the instance, who may submit jobs.
var asOwner = []string{"setpriv", "--reuid=flux", "--regid=flux", "--init-groups", "--"}

// jobOptions returns the options of a job with one task, or one slot of a batch job, on each compute node.
func (e *Engine) jobOptions(job string) []string {
	nodes := e.nodesOf(Compute)
	count := strconv.Itoa(len(nodes))
	return []string{"--job-name=" + job, "--cwd=/", "--time-limit=2m", "--nodes=" + count, "-n" + count, "--requires=hosts:" + strings.Join(nodes, ",")}
}

// checkRun returns nil if flux run starts a task on each compute node.
func (e *Engine) checkRun(ctx context.Context) error {
	job := batch.NewCheckJob()
	argv := append([]string{"flux", "run"}, e.jobOptions(job)...)
	out, err := e.runJob(ctx, job, append(argv, "uname", "-n")...)
	if err != nil {
		return err
	}
	got, want := strings.Fields(out), slices.Sorted(slices.Values(e.nodesOf(Compute)))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("flux run ran on %q, want %q", got, want)
	}
	return nil
}

// batchScript submits a batch job with the options in its arguments, and waits for its end. A batch job is an instance of
// its own, whose brokers connect to each other on ports that the kernel chooses.
const batchScript = `id=$(flux batch --output=/dev/null --error=/dev/null "$@" --wrap flux run --nodes="$NODES" --ntasks="$NODES" true) && flux job status "$id"`

// checkBatch returns nil if a batch job on all compute nodes succeeds.
func (e *Engine) checkBatch(ctx context.Context) error {
	job := batch.NewCheckJob()
	script := "NODES=" + strconv.Itoa(len(e.nodesOf(Compute))) + "\n" + batchScript
	_, err := e.runJob(ctx, job, append([]string{"sh", "-c", script, "sh"}, e.jobOptions(job)...)...)
	return err
}

// cancelScript cancels the job that its argument describes, if there is one.
const cancelScript = `! flux pgrep "$1" > /dev/null || flux pkill "$1"`

// runJob runs a command that waits for the job of this name. If it fails, the job is cancelled.
func (e *Engine) runJob(ctx context.Context, job string, argv ...string) (string, error) {
	leader := e.leader()
	if leader == "" {
		return "", errNoLeader
	}
	out, err := e.Run(ctx, leader, nil, append(slices.Clone(asOwner), argv...)...)
	if err == nil {
		return string(out), nil
	}
	text := batch.LastLine(err)
	if ctx.Err() != nil {
		text = "the job has not ended in time; on the leader: flux jobs -A"
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := e.runOnLeader(late, append(slices.Clone(asOwner), "sh", "-c", cancelScript, "sh", "name:"+job)...); err != nil {
		text += "; its job cannot be cancelled: " + batch.LastLine(err)
	}
	return "", errors.New(text)
}
