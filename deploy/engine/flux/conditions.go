package flux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	conditions := e.Pool.Conditions(o, "the leader's broker answers and starts jobs", e.checkLeader, "online and not drained")
	if nodes := e.NodesOf(Compute); o.Deep && len(nodes) > 0 {
		script := "NODES=" + strconv.Itoa(len(nodes)) + "\n" + batchScript
		conditions = append(conditions, e.DeepCondition("flux run runs on", e.newJob([]string{"flux", "run"}, "true")),
			e.DeepCondition("a batch job runs on", e.newJob([]string{"sh", "-c", script, "sh"})))
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
			return fmt.Errorf("no jobs are started in the queue %s (%s); on the leader: flux queue start -a", q.key(), cmp.Or(q.reason, "no reason"))
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

// batchScript submits a batch job with the options in its arguments, and waits for the end of the job. Flux starts an instance of
// its own for each batch job. The brokers of that instance connect to each other on ports that the kernel chooses.
const batchScript = `id=$(flux batch --output=/dev/null --error=/dev/null "$@" --wrap flux run --nodes="$NODES" --ntasks="$NODES" true) && flux job status "$id"`

// WaitReady implements [engine.Engine]. A node is ready when its broker runs and is online. The leader is ready when the
// scheduler runs, too: before that, Flux does not report which queues are stopped.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	return engine.AwaitReady(ctx, name, report, func(ctx context.Context) error { return e.checkReady(ctx, name) },
		func(ctx context.Context) string { return e.ReadLog(ctx, name, unit) })
}

// checkReady returns nil if the node works, or if it does not belong to the instance.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	inHive := e.Has(name)
	if inHive {
		// Ask the node itself: the leader may still report a broker as online that has just been stopped.
		if err := engine.Inspect(ctx, e, name, true); err != nil {
			return err
		}
	}
	s, err := e.readStatus(ctx)
	n, configured := s.nodes[name]
	switch {
	case err != nil:
		return err
	case !configured && inHive:
		return errors.New("the running instance has no node of this name; the leader has not been changed yet")
	case !inHive && !n.drained:
		return nil
	case !n.isReady():
		return errors.New("it is " + n.describe())
	case name == e.Node() && slices.ContainsFunc(s.queues, func(q queue) bool { return q.reason == noScheduler }):
		return errors.New("the scheduler has not started")
	}
	return nil
}

func (e *Engine) FindFaults(ctx context.Context, name string) ([]engine.Fault, error) {
	return e.Cluster.FindFaults(ctx, name, unit)
}

const unit = "flux.service" // the systemd unit of the broker

func (c *client) UnitOf(string) string { return unit }
