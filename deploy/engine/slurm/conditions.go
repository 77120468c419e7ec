package slurm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

const deepTimeout = 2 * time.Minute

// Conditions implements [engine.Checker].
func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	count := batch.CountComputeNodes(len(e.nodesOf(Compute)))
	conditions := []check.Condition{
		{Name: "slurmctld answers", Every: batch.PollInterval, Probe: e.checkController, Explain: func(ctx context.Context) string {
			return e.explain(ctx, []string{e.controller()})
		}},
		{Name: count + " idle or running jobs", Every: batch.PollInterval, Probe: func(ctx context.Context) error { return e.checkNodes(ctx, o.Except) }, Explain: func(ctx context.Context) string {
			unready, _, _ := e.compareNodes(ctx, o.Except)
			return e.explain(ctx, append([]string{e.controller()}, unready...))
		}},
	}
	if name := e.accountingNode(); name != "" {
		conditions = append(conditions, check.Condition{Name: "slurmdbd answers", Every: batch.PollInterval, Probe: e.checkAccounting, Explain: func(ctx context.Context) string {
			return batch.Explain(ctx, e.Cluster, []string{name}, func(string) string { return logOf(accountingUnit) })
		}})
	}
	if o.Deep && len(e.nodesOf(Compute)) > 0 {
		conditions = append(conditions,
			check.Condition{Name: "srun runs on " + count, Probe: e.checkSrun, Every: 2 * time.Second, Limit: deepTimeout},
			check.Condition{Name: "a batch job runs srun on " + count, Probe: e.checkBatch, Every: 2 * time.Second, Limit: deepTimeout})
	}
	return conditions
}

// checkController returns nil if slurmctld answers.
func (e *Engine) checkController(ctx context.Context) error {
	out, err := e.runOnController(ctx, "scontrol", "ping")
	switch {
	case err != nil:
		return errors.New(batch.LastLine(err))
	case !strings.Contains(out, "is UP"):
		return errors.New(strings.TrimSpace(out))
	}
	return nil
}

// checkNodes returns nil if the registered nodes are exactly the compute nodes of the hive, and all of them
// take or run jobs. SLURM itself drains nodes on which it could not start or end a job, so a drained node is
// reported unless it is in except, also if an administrator has drained it.
func (e *Engine) checkNodes(ctx context.Context, except []string) error {
	_, problems, err := e.compareNodes(ctx, except)
	switch {
	case err != nil:
		return errors.New(batch.LastLine(err))
	case len(problems) > 0:
		return errors.New(batch.Abbreviate(problems))
	}
	return nil
}

// compareNodes compares the registered nodes with the hive. It returns the compute nodes of the hive that do
// not take jobs, and a text for each difference.
func (e *Engine) compareNodes(ctx context.Context, except []string) (unready, problems []string, err error) {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range e.nodesOf(Compute) {
		n, isMember := nodes[name]
		switch {
		case n.isOutOfService() && slices.Contains(except, name):
			delete(nodes, name)
			continue
		case !isMember:
			problems = append(problems, name+" has not registered")
		case !n.isReady() || n.isDrained():
			problems = append(problems, name+" is "+n.describe())
		case n["Drained"] != "":
			problems = append(problems, name+": "+n["Drained"])
		default:
			delete(nodes, name)
			continue
		}
		unready = append(unready, name)
		delete(nodes, name)
	}
	var extra []string
	for name := range nodes {
		extra = append(extra, name+" is registered and is not in the hive")
	}
	slices.Sort(extra)
	return unready, append(problems, extra...), nil
}

// explain returns the last log lines of SLURM's daemons on nodes.
func (e *Engine) explain(ctx context.Context, nodes []string) string {
	return batch.Explain(ctx, e.Cluster, nodes, func(node string) string { return logOf(e.unitOf(node)) })
}
