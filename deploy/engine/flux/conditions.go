package flux

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
	conditions := e.Pool.Conditions(o, "the leader's broker answers and starts jobs", e.checkLeader, "online and not drained")
	if o.Deep && len(e.NodesOf(Compute)) > 0 {
		conditions = append(conditions, e.DeepCondition("flux run runs on", e.checkRun), e.DeepCondition("a batch job runs on", e.checkBatch))
	}
	return conditions
}

// checkLeader returns nil if the broker of the leader answers and all queues of jobs are started. Flux itself stops the queues
// after a crash of the leader.
func (e *Engine) checkLeader(ctx context.Context) error {
	s, err := e.readStatus(ctx)
	if err != nil {
		return engine.LastLine(err)
	}
	for _, q := range s.queues {
		if !q.started {
			text := "no jobs are started"
			if q.name != "" {
				text += " in the queue " + q.name
			}
			if q.reason != "" {
				text += " (" + q.reason + ")"
			}
			return errors.New(text + "; on the leader: flux queue start -a")
		}
	}
	return nil
}

// newJob returns a test job with one task on each compute node; a batch job has one slot on each. The command line is command,
// then the options of the job, then program.
func (e *Engine) newJob(command []string, program ...string) batch.Job {
	nodes := e.NodesOf(Compute)
	name, count := batch.NewJobName(), strconv.Itoa(len(nodes))
	command = append(command, "--job-name="+name, "--cwd=/", "--time-limit=2m", "--nodes="+count, "-n"+count, "--requires=hosts:"+strings.Join(nodes, ","))
	return batch.Job{Command: append(command, program...), Cancel: []string{"sh", "-c", cancelScript, "sh", "name:" + name}}
}

// cancelScript cancels the job that its first argument selects, in the syntax of flux pgrep, if there is such a job.
const cancelScript = `! flux pgrep "$1" > /dev/null || flux pkill "$1"`

func (e *Engine) checkRun(ctx context.Context) error {
	return e.CheckHosts(ctx, e.newJob([]string{"flux", "run"}, "uname", "-n"), "flux run", e.NodesOf(Compute))
}

// batchScript submits a batch job with the options in its arguments, and waits for the end of the job. Flux starts an instance of
// its own for each batch job. The brokers of that instance connect to each other on ports that the kernel chooses.
const batchScript = `id=$(flux batch --output=/dev/null --error=/dev/null "$@" --wrap flux run --nodes="$NODES" --ntasks="$NODES" true) && flux job status "$id"`

func (e *Engine) checkBatch(ctx context.Context) error {
	script := "NODES=" + strconv.Itoa(len(e.NodesOf(Compute))) + "\n" + batchScript
	_, err := e.RunJob(ctx, e.newJob([]string{"sh", "-c", script, "sh"}))
	return err
}
