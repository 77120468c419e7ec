package flux

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

// Drain implements [engine.Engine]. It also drains nodes of the hive that are offline: after a change of the leader they
// come back one after the other, and must not get jobs before they are changed.
func (e *Engine) Drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return e.drain(ctx, nodes, o, report, func(name string, n node) bool {
		return !n.online && !slices.Contains(e.nodesOf(Compute), name)
	})
}

// DrainForRemoval implements [engine.MemberRemover].
func (e *Engine) DrainForRemoval(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return e.drain(ctx, nodes, o, report, func(_ string, n node) bool { return !n.isReady() })
}

// drain drains the configured nodes among nodes for which leaveOut returns false.
func (e *Engine) drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report, leaveOut func(string, node) bool) error {
	s, err := e.readStatus(ctx)
	switch {
	case errors.Is(err, errNoLeader) || len(nodes) == 0:
		return nil
	case err != nil:
		return &engine.DrainError{Node: nodes[0], Err: err}
	}
	var members, marked []string
	for _, name := range nodes {
		n, configured := s.nodes[name]
		if !configured || leaveOut(name, n) {
			continue
		}
		members = append(members, name)
		if name == e.leader() || !n.drained {
			marked = append(marked, name)
		}
	}
	if len(members) == 0 {
		return nil
	}
	err = e.mark(ctx, marked, s.queues)
	if err == nil {
		err = e.waitForJobs(ctx, members, o.Broken, report)
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*commandTimeout)
		defer cancel()
		err = errors.Join(err, e.undrainOurs(late, marked))
	}
	return err
}

// reason is the reason of a drain before a change.
const reason = drainReason + "it is about to change"

// mark drains compute nodes with one command, and for the leader stops the queues that are started.
func (e *Engine) mark(ctx context.Context, nodes []string, queues []queue) error {
	if slices.Contains(nodes, e.leader()) {
		if err := e.stopQueues(ctx, queues); err != nil {
			return &engine.DrainError{Node: e.leader(), Err: err}
		}
	}
	if compute := e.withoutLeader(nodes); len(compute) > 0 {
		if _, err := e.runOnLeader(ctx, "flux", "resource", "drain", strings.Join(compute, ","), reason); err != nil {
			return &engine.DrainError{Node: compute[0], Err: err}
		}
	}
	return nil
}

// stopQueues stops the queues that are started. It writes their names to stoppedKey before.
func (e *Engine) stopQueues(ctx context.Context, queues []queue) error {
	var keys []string
	for _, q := range queues {
		if q.started || q.isStoppedByUs() {
			keys = append(keys, q.key())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := e.runOnLeader(ctx, "flux", "kvs", "put", stoppedKey+"="+strings.Join(keys, " ")); err != nil {
		return err
	}
	for _, q := range queues {
		if q.started {
			if _, err := e.runOnLeader(ctx, q.command("stop", "--message="+reason)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// startQueues starts the queues that nixbench has stopped, and removes stoppedKey afterwards.
func (e *Engine) startQueues(ctx context.Context, queues []queue) error {
	marked := false
	for _, q := range queues {
		marked = marked || q.marked
		if q.isStoppedByUs() {
			if _, err := e.runOnLeader(ctx, q.command("start")...); err != nil {
				return err
			}
		}
	}
	if !marked {
		return nil
	}
	_, err := e.runOnLeader(ctx, "flux", "kvs", "unlink", stoppedKey)
	return err
}

// command returns a command of `flux queue` for this queue.
func (q queue) command(verb string, options ...string) []string {
	argv := append([]string{"flux", "queue", verb, "--quiet"}, options...)
	if q.name != "" {
		argv = append(argv, q.name)
	}
	return argv
}

func (e *Engine) withoutLeader(nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == e.leader() })
}

// waitForJobs waits until no jobs run on the nodes; with the leader, until no jobs run at all.
func (e *Engine) waitForJobs(ctx context.Context, nodes, broken []string, report engine.Report) error {
	s, err := e.settingsOf(e.leader())
	if err != nil {
		return err
	}
	limit := time.Duration(s.DrainTimeout) * time.Second
	return batch.WaitForJobs(ctx, batch.JobWait{
		Nodes: nodes, Broken: broken, Limit: limit, List: e.listJobs, Report: report,
		Observe: func(ctx context.Context) (func(string) bool, error) {
			s, err := e.readStatus(ctx)
			return func(name string) bool { return s.nodes[name].busy || name == e.leader() && s.isBusy() }, err
		},
		NewError: func(name string, jobs []string) error {
			return &JobsRunningError{After: limit, Jobs: jobs, Leader: name == e.leader()}
		},
	})
}

// listJobs returns the ids of the running jobs on a node, for the leader those of all jobs. It returns nil if they cannot
// be listed.
func (e *Engine) listJobs(ctx context.Context, node string) []string {
	argv := []string{"flux", "jobs", "--no-header", "-A", "--filter=running", "--format={id.f58plain}"}
	if node != e.leader() {
		argv = append(argv, "--include="+node)
	}
	out, err := e.runOnLeader(ctx, argv...)
	if err != nil {
		return nil
	}
	return strings.Fields(out)
}

// JobsRunningError is returned if jobs have not ended within the time limit of a drain.
type JobsRunningError struct {
	After  time.Duration
	Jobs   []string // their ids
	Leader bool     // the leader is drained, so these are the jobs of all nodes
}

func (e *JobsRunningError) Error() string {
	if e.Leader {
		return fmt.Sprintf("a restart of the leader ends all jobs, and after %v there still are %s", e.After, batch.FormatJobs(e.Jobs))
	}
	return fmt.Sprintf("after %v it still has %s", e.After, batch.FormatJobs(e.Jobs))
}

// Hint returns what to do about the jobs.
func (e *JobsRunningError) Hint() string {
	return "wait for the jobs, or cancel them (flux cancel); nixbench.flux.drainTimeout of the leader is the time limit; --no-drain does not wait, and ends jobs if the broker restarts"
}

// Uncordon implements [engine.Engine].
func (e *Engine) Uncordon(ctx context.Context, name string) error {
	return e.undrainOurs(ctx, []string{name})
}

// undrainOurs ends the drain of those of the nodes that nixbench has drained: an administrator may have drained one of
// them meanwhile.
func (e *Engine) undrainOurs(ctx context.Context, nodes []string) error {
	s, err := e.readStatus(ctx)
	if errors.Is(err, errNoLeader) || len(nodes) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(e.withoutLeader(nodes), func(name string) bool { return !s.nodes[name].isDrainedByUs() })
	if len(ours) > 0 {
		if _, err := e.runOnLeader(ctx, "flux", "resource", "undrain", strings.Join(ours, ",")); err != nil {
			return err
		}
	}
	if !slices.Contains(nodes, e.leader()) {
		return nil
	}
	return e.startQueues(ctx, s.queues)
}
