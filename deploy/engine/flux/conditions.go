package flux

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// Conditions implements [engine.Checker].
func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	compute := e.nodesOf(Compute)
	count := batch.CountComputeNodes(len(compute))
	conditions := []check.Condition{
		{Name: "the leader's broker answers and starts jobs", Every: batch.PollInterval, Probe: e.checkLeader, Explain: func(ctx context.Context) string {
			return e.explain(ctx, []string{e.leader()})
		}},
		{Name: count + " online and not drained", Every: batch.PollInterval, Probe: func(ctx context.Context) error { return e.checkNodes(ctx, o.Except) }, Explain: func(ctx context.Context) string {
			s, _ := e.readStatus(ctx)
			unready, _ := e.compareNodes(s, o.Except)
			return e.explain(ctx, append([]string{e.leader()}, unready...))
		}},
	}
	if o.Deep && len(compute) > 0 {
		conditions = append(conditions,
			check.Condition{Name: "flux run runs on " + count, Probe: e.checkRun, Every: 2 * time.Second, Limit: deepTimeout},
			check.Condition{Name: "a batch job runs on " + count, Probe: e.checkBatch, Every: 2 * time.Second, Limit: deepTimeout})
	}
	return conditions
}

// checkLeader returns nil if the leader's broker answers, and starts the jobs of all queues. Flux itself stops the
// queues after a crash of the leader.
func (e *Engine) checkLeader(ctx context.Context) error {
	s, err := e.readStatus(ctx)
	if err != nil {
		return errors.New(batch.LastLine(err))
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

// checkNodes returns nil if the online nodes are exactly the nodes of the hive, and none is drained. Flux itself drains
// nodes that do not have the configured resources, so a drained node is reported unless it is in except, also if an administrator has drained
// it.
func (e *Engine) checkNodes(ctx context.Context, except []string) error {
	s, err := e.readStatus(ctx)
	if err != nil {
		return errors.New(batch.LastLine(err))
	}
	if _, problems := e.compareNodes(s, except); len(problems) > 0 {
		return errors.New(batch.Abbreviate(problems))
	}
	return nil
}

// compareNodes compares the nodes of the instance with the hive. It returns the compute nodes of the hive that take no
// jobs, and a text for each difference.
func (e *Engine) compareNodes(s status, except []string) (unready, problems []string) {
	for _, name := range e.nodesOf(Compute) {
		n, configured := s.nodes[name]
		switch {
		case n.drained && !n.isDrainedByUs() && slices.Contains(except, name):
			continue
		case !configured:
			problems = append(problems, name+" is not configured on the leader")
		case !n.isReady() || n.drained:
			problems = append(problems, name+" is "+n.describe())
		default:
			continue
		}
		unready = append(unready, name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if s.nodes[name].online && name != e.leader() && !slices.Contains(e.nodesOf(Compute), name) {
			problems = append(problems, name+" is online and is not in the hive")
		}
	}
	return unready, problems
}

// explain returns the last log lines of the brokers on nodes.
func (e *Engine) explain(ctx context.Context, nodes []string) string {
	return batch.Explain(ctx, e.Cluster, nodes, func(string) string { return brokerLog })
}
