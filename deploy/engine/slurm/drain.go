package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// Drain implements [engine.Engine]. It waits for the jobs of all members, also of those that an
// administrator has drained.
func (e *Engine) Drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return e.drain(ctx, nodes, o, report, func(node) bool { return false })
}

// DrainForRemoval implements [engine.MemberRemover]. It leaves out nodes that run no jobs.
func (e *Engine) DrainForRemoval(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return e.drain(ctx, nodes, o, report, func(n node) bool { return !n.runsJobs() })
}

// drain drains the registered nodes among nodes for which leaveOut returns false.
func (e *Engine) drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report, leaveOut func(node) bool) error {
	registered, err := e.listNodes(ctx)
	switch {
	case errors.Is(err, errNoController) || len(nodes) == 0:
		return nil
	case err != nil:
		return &engine.DrainError{Node: nodes[0], Err: err}
	}
	var members, marked []string
	for _, name := range nodes {
		n, isMember := registered[name]
		if !isMember || leaveOut(n) {
			continue
		}
		members = append(members, name)
		if !n.isDrained() {
			marked = append(marked, name)
		}
	}
	if len(members) == 0 {
		return nil
	}
	err = e.markAndWait(ctx, registered, members, marked, o, report)
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*commandTimeout)
		defer cancel()
		err = errors.Join(err, e.undrainOurs(late, marked))
	}
	return err
}

// undrainOurs undrains those of the nodes that are still drained by us: an administrator may have drained one of them meanwhile.
func (e *Engine) undrainOurs(ctx context.Context, nodes []string) error {
	registered, err := e.listNodes(ctx)
	if err != nil {
		return err
	}
	return e.undrain(ctx, registered, slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !registered[name].isDrainedByUs() }))
}

// markAndWait sets the state DRAIN of the nodes in mark with one command, and waits for the jobs of members.
func (e *Engine) markAndWait(ctx context.Context, registered map[string]node, members, mark []string, o engine.DrainOptions, report engine.Report) error {
	reasons := map[string][]string{} // the nodes by the reason of their drain
	for _, name := range mark {
		reason := drainReason
		if n := registered[name]; n.isSetDown() {
			reason += downBefore + n["Reason"]
		}
		reasons[reason] = append(reasons[reason], name)
	}
	for reason, nodes := range reasons {
		if _, err := e.runOnController(ctx, "scontrol", "update", "nodename="+namesOf(registered, nodes), "state=drain", "reason="+reason); err != nil {
			return &engine.DrainError{Node: nodes[0], Err: err}
		}
	}
	s, err := e.settingsOf(e.controller())
	if err != nil {
		return err
	}
	limit := time.Duration(s.DrainTimeout) * time.Second
	return batch.WaitForJobs(ctx, batch.JobWait{
		Nodes: members, Broken: o.Broken, Limit: limit, Report: report,
		List: func(ctx context.Context, name string) []string {
			return e.listJobs(ctx, namesOf(registered, []string{name}))
		},
		Observe: func(ctx context.Context) (func(string) bool, error) {
			registered, err := e.listNodes(ctx)
			return func(name string) bool { n, isMember := registered[name]; return isMember && n.isBusy() }, err
		},
		NewError: func(_ string, jobs []string) error { return &JobsRunningError{After: limit, Jobs: jobs} },
	})
}

// namesOf returns the names in SLURM of registered nodes, as a list that SLURM's commands accept.
func namesOf(registered map[string]node, nodes []string) string {
	var names []string
	for _, name := range nodes {
		names = append(names, registered[name]["NodeName"])
	}
	return strings.Join(names, ",")
}

// listJobs returns the ids of the jobs on a list of nodes, or nil if they cannot be listed.
func (e *Engine) listJobs(ctx context.Context, nodes string) []string {
	out, err := e.runOnController(ctx, "squeue", "--noheader", "--nodelist="+nodes, "--states=all", "--format=%i %T")
	if err != nil {
		return nil
	}
	var jobs []string
	for line := range strings.Lines(out) {
		id, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains([]string{"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "STOPPED", "SIGNALING"}, state) {
			jobs = append(jobs, id)
		}
	}
	return jobs
}

// JobsRunningError is returned if the jobs of a node have not ended within the time limit of a drain.
type JobsRunningError struct {
	After time.Duration
	Jobs  []string // their ids
}

func (e *JobsRunningError) Error() string {
	return fmt.Sprintf("after %v it still has %s", e.After, batch.FormatJobs(e.Jobs))
}

// Hint returns what to do about the jobs.
func (e *JobsRunningError) Hint() string {
	return "wait for the jobs, or cancel them (scancel); nixbench.slurm.drainTimeout of the controller is the time limit; with --no-drain the node changes while they run"
}

// Uncordon implements [engine.Engine].
func (e *Engine) Uncordon(ctx context.Context, name string) error {
	nodes, err := e.listNodes(ctx)
	switch {
	case errors.Is(err, errNoController):
		return nil
	case err != nil:
		return err
	case !nodes[name].isDrainedByUs() || nodes[name].isRemoved():
		return nil
	}
	return e.undrain(ctx, nodes, []string{name})
}

// undrain ends the drain of nodes. Unlike the state RESUME, UNDRAIN does not make a node available that is down. Nodes that an administrator had set to
// DOWN before the drain are DOWN again, with the administrator's reason. They stay drained, because SLURM makes a node that is only DOWN available as soon as
// its slurmd registers or answers (ReturnToService).
func (e *Engine) undrain(ctx context.Context, registered map[string]node, nodes []string) error {
	var end []string
	for _, name := range nodes {
		n := registered[name]
		if !n.wasDown() {
			end = append(end, name)
			continue
		}
		reason := strings.TrimPrefix(n["Reason"], drainReason+downBefore)
		if _, err := e.runOnController(ctx, "scontrol", "update", "nodename="+n["NodeName"], "state=down", "reason="+reason); err != nil {
			return err
		}
	}
	if len(end) == 0 {
		return nil
	}
	_, err := e.runOnController(ctx, "scontrol", "update", "nodename="+namesOf(registered, end), "state=undrain")
	return err
}
