package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
)

const (
	deepTimeout = 2 * time.Minute
	logLines    = 10
	// maxExplained is the maximum number of nodes whose logs an explanation contains. Further ones usually have
	// the same problem.
	maxExplained = 3
)

// Conditions implements [engine.Checker].
func (e *Engine) Conditions(deep bool) []check.Condition {
	count := strconv.Itoa(len(e.nodesOf(Compute))) + " compute nodes"
	if len(e.nodesOf(Compute)) == 1 {
		count = "1 compute node"
	}
	conditions := []check.Condition{
		{Name: "slurmctld answers", Every: pollInterval, Probe: e.checkController, Explain: func(ctx context.Context) string {
			return e.explain(ctx, []string{e.controller()})
		}},
		{Name: count + " idle or running jobs", Every: pollInterval, Probe: e.checkNodes, Explain: func(ctx context.Context) string {
			unready, _, _ := e.compareNodes(ctx)
			return e.explain(ctx, append([]string{e.controller()}, unready...))
		}},
	}
	if name := e.accountingNode(); name != "" {
		conditions = append(conditions, check.Condition{Name: "slurmdbd answers", Every: pollInterval, Probe: e.checkAccounting, Explain: func(ctx context.Context) string {
			return e.explainUnit(ctx, name, accountingUnit)
		}})
	}
	if deep && len(e.nodesOf(Compute)) > 0 {
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
		return errors.New(lastLine(err))
	case !strings.Contains(out, "is UP"):
		return errors.New(strings.TrimSpace(out))
	}
	return nil
}

// checkNodes returns nil if the registered nodes are exactly the compute nodes of the hive, and all of them
// take or run jobs. SLURM itself drains nodes on which it could not start or end a job, so a drained node is
// reported, also if an administrator has drained it.
func (e *Engine) checkNodes(ctx context.Context) error {
	_, problems, err := e.compareNodes(ctx)
	switch {
	case err != nil:
		return errors.New(lastLine(err))
	case len(problems) > 0:
		return errors.New(abbreviate(problems))
	}
	return nil
}

// compareNodes compares the registered nodes with the hive. It returns the compute nodes of the hive that do
// not take jobs, and a text for each difference.
func (e *Engine) compareNodes(ctx context.Context) (unready, problems []string, err error) {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range e.nodesOf(Compute) {
		n, isMember := nodes[name]
		switch {
		case !isMember:
			problems = append(problems, name+" has not registered")
		case !n.isReady() || n.isDrained():
			problems = append(problems, name+" is "+n.describe())
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

// abbreviate joins at most six texts, and adds the number of the others.
func abbreviate(texts []string) string {
	const most = 6
	if len(texts) > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:most], "; "), len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

// explain returns the last log lines of SLURM's daemons on nodes.
func (e *Engine) explain(ctx context.Context, nodes []string) string {
	var b strings.Builder
	for _, name := range nodes[:min(maxExplained, len(nodes))] {
		if text := e.explainUnit(ctx, name, e.unitOf(name)); text != "" {
			b.WriteString(text + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// explainUnit returns the last log lines of a unit on a node.
func (e *Engine) explainUnit(ctx context.Context, node, unit string) string {
	log := e.readLog(ctx, node, unit, logLines)
	if log == "" {
		return ""
	}
	return node + ":\n  " + strings.ReplaceAll(log, "\n", "\n  ")
}
