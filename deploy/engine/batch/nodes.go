package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Node is a node as its batch system reports it. The zero value is a node that does not exist.
type Node interface {
	// Status returns the status of the node as a member of the cluster. The status has a reason if an administrator, or the batch system
	// after a failure of the node, has taken the node out of service. isMember is false for a node that was removed or does not exist.
	Status() (status engine.Status, isMember bool)
	// IsDrained reports whether the node gets no new jobs. IsDrainedByUs reports whether nixbench has drained the node. nixbench
	// does not end the drain of a node that an administrator or the batch system itself has drained.
	IsDrained() bool
	IsDrainedByUs() bool
	IsBusy() bool // jobs run on the node, or are ending
	// Problem returns the end of a sentence that begins with the node's name, such as " is offline". It is empty if the node takes jobs.
	Problem() string
}

// System is a batch system whose nodes have the type N.
type System[N Node] interface {
	// Nodes asks the head for the nodes of the system, by name.
	Nodes(ctx context.Context) (map[string]N, error)
	// MustDrain selects the nodes that [engine.Engine.Drain] drains.
	MustDrain(node string, n N, o engine.DrainOptions) bool
	// Mark drains nodes that are not drained. It returns an [engine.DrainError].
	Mark(ctx context.Context, all map[string]N, nodes []string) error
	// Unmark ends the drain of nodes that nixbench has drained.
	Unmark(ctx context.Context, all map[string]N, nodes []string) error
	// ListJobs returns the command that prints the ids of the jobs on a node.
	ListJobs(node string, n N) []string
	// Remove removes a node from the batch system. The caller has stopped the systemd unit of the batch system on the node, such
	// as slurmd.service. stopErr is the error of that stop: the machine may be lost, or be new and not have the systemd unit.
	Remove(ctx context.Context, node string, n N, stopErr error) error
	// UnitOf returns the systemd unit of the batch system's daemon on a node, such as slurmd.service.
	UnitOf(node string) string
}

// Pool drains and checks the nodes of a batch system.
type Pool[N Node] struct {
	Head   *Head
	System System[N]
	Unit   string // the systemd unit of the batch system on the compute nodes, such as slurmd.service
}

const (
	// brokenDrainTimeout is the time limit of a drain of a node whose daemon does not work: the batch system cannot observe
	// the end of the node's jobs.
	brokenDrainTimeout = 10 * time.Second
	// answerTimeout is the maximum time for which a drain waits for an answer of the batch system.
	answerTimeout = time.Minute
)

func (p Pool[N]) Members(ctx context.Context) (map[string]engine.Status, error) {
	all, err := p.System.Nodes(ctx)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Head.Kind, err)
	}
	members := map[string]engine.Status{}
	for name, n := range all {
		if status, isMember := n.Status(); isMember {
			members[name] = status
		}
	}
	return members, nil
}

// RemoveMember implements [engine.Engine]. It first stops the batch system's daemon on the compute node, because a running
// daemon would register the node again. If the removal then fails, RemoveMember starts the daemon again.
func (p Pool[N]) RemoveMember(ctx context.Context, node string) error {
	all, err := p.System.Nodes(ctx)
	n := all[node]
	_, isMember := n.Status()
	switch {
	case errors.Is(err, ErrAbsent):
		return nil
	case err != nil:
		return failure.On(node, err)
	case !isMember || node == p.Head.Node():
		return nil
	}
	stopErr := p.Head.ControlUnit(ctx, node, "stop", p.Unit)
	if err = p.System.Remove(ctx, node, n, stopErr); err != nil && stopErr == nil {
		err = errors.Join(err, p.Head.ControlUnit(context.WithoutCancel(ctx), node, "start", p.Unit))
	}
	return failure.On(node, err)
}

// Drain implements [engine.Engine]. It waits for the end of the jobs of all members, also of members that an administrator has drained.
func (p Pool[N]) Drain(ctx context.Context, names []string, o engine.DrainOptions, report engine.Report) error {
	all, err := p.System.Nodes(ctx)
	switch {
	case errors.Is(err, ErrAbsent) || len(names) == 0:
		return nil
	case err != nil:
		return engine.NewDrainError(names[0], err)
	}
	var members, marked []string
	for _, name := range names {
		n, exists := all[name]
		if !exists || !p.System.MustDrain(name, n, o) {
			continue
		}
		members = append(members, name)
		if !n.IsDrained() {
			marked = append(marked, name)
		}
	}
	if len(members) == 0 {
		return nil
	}
	if err = p.System.Mark(ctx, all, marked); err == nil {
		err = p.waitForJobs(ctx, members, o.Broken, report)
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*engine.CommandTimeout)
		defer cancel()
		err = errors.Join(err, p.unmarkOurs(late, marked))
	}
	return err
}

func (p Pool[N]) Uncordon(ctx context.Context, node string) error {
	return p.unmarkOurs(ctx, []string{node})
}

// unmarkOurs ends the drain of nodes, except those that an administrator has drained meanwhile.
func (p Pool[N]) unmarkOurs(ctx context.Context, nodes []string) error {
	all, err := p.System.Nodes(ctx)
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !all[name].IsDrainedByUs() })
	if len(ours) == 0 {
		return nil
	}
	return p.System.Unmark(ctx, all, ours)
}

// waitForJobs waits until the nodes have no jobs. For the nodes in broken, it waits at most brokenDrainTimeout. If it fails, it
// returns an [engine.DrainError].
func (p Pool[N]) waitForJobs(ctx context.Context, nodes, broken []string, report engine.Report) error {
	settings := struct{ DrainTimeout int }{300} // in seconds
	if err := p.Head.Member(p.Head.Node()).ReadSettings(&settings); err != nil {
		return err
	}
	limit := time.Duration(settings.DrainTimeout) * time.Second
	begin := time.Now()
	answered := begin
	reported := map[string]string{}
	for _, name := range nodes {
		report(name, "gets no new jobs")
	}
	for {
		all, err := p.System.Nodes(ctx)
		if err == nil {
			answered = time.Now()
		}
		var busy []string
		for _, name := range nodes {
			ignored := slices.Contains(broken, name) && time.Since(begin) > brokenDrainTimeout
			if n, exists := all[name]; exists && !ignored && n.IsBusy() {
				busy = append(busy, name)
			}
		}
		switch {
		case ctx.Err() != nil:
			return engine.NewDrainError(nodes[0], context.Cause(ctx))
		case err != nil && time.Since(answered) > min(limit, answerTimeout):
			return engine.NewDrainError(nodes[0], err)
		case err == nil && len(busy) == 0:
			return nil
		}
		for _, name := range busy {
			out, _ := p.Head.RunOnHead(ctx, p.System.ListJobs(name, all[name])...) // after an error, the text names no jobs
			jobs := strings.Fields(out)
			if time.Since(begin) > limit {
				return newJobsRunningError(p.Head, name, limit, jobs)
			}
			if text := "waits for " + formatJobs(jobs); reported[name] != text {
				reported[name] = text
				report(name, text)
			}
		}
		engine.Sleep(ctx, engine.PollInterval)
	}
}

// formatJobs returns a text that names at most six jobs.
func formatJobs(jobs []string) string {
	if len(jobs) == 0 {
		return "jobs that are ending"
	}
	return "jobs " + event.Abbreviate(jobs, ", ")
}

// newJobsRunningError returns the error for jobs on a node that have not ended within the time limit of a drain. If the node is
// the head, jobs are the jobs of all nodes.
func newJobsRunningError(h *Head, node string, limit time.Duration, jobs []string) error {
	err := fmt.Errorf("after %v it still has %s", limit, formatJobs(jobs))
	if node == h.Node() {
		err = fmt.Errorf("a restart of the %s ends all jobs, and after %v there still are %s", h.Role, limit, formatJobs(jobs))
	}
	return engine.NewDrainError(node, failure.WithHint(err, fmt.Sprintf(
		"wait for the jobs, or cancel them (%s); nixbench.%s.drainTimeout of the %s is the time limit; %s", h.Cancel, h.Kind, h.Role, h.Undrained)))
}

// Conditions returns the conditions of a batch system. The name of the first one is head, and its probe checkHead. The second one
// is that the nodes are as [Pool.CheckNodes] requires; its name is the number of compute nodes, followed by nodes.
func (p Pool[N]) Conditions(o engine.CheckOptions, head string, checkHead func(context.Context) error, nodes string) []check.Condition {
	explain := func(ctx context.Context, nodes []string) string {
		return p.Head.Explain(ctx, append([]string{p.Head.Node()}, nodes...), p.System.UnitOf)
	}
	return []check.Condition{
		{Name: head, Every: engine.PollInterval, Probe: checkHead, Explain: func(ctx context.Context) string { return explain(ctx, nil) }},
		{Name: p.count() + " " + nodes, Every: engine.PollInterval,
			Probe: func(ctx context.Context) error { return p.CheckNodes(ctx, o) },
			Explain: func(ctx context.Context) string {
				unready, _, _ := p.compare(ctx, o)
				return explain(ctx, unready)
			}},
	}
}

// DeepCondition returns a condition of nixbench check --deep, whose probe runs a job on all compute nodes.
func (p Pool[N]) DeepCondition(name string, j Job) check.Condition {
	return check.Condition{Name: name + " " + p.count(), Probe: func(ctx context.Context) error { return p.Head.runJob(ctx, j) }, Every: 2 * time.Second, Limit: 2 * time.Minute}
}

func (p Pool[N]) count() string {
	return event.Count(len(p.Head.NodesOf(Compute)), "compute node")
}

// CheckNodes returns nil if the nodes of the batch system are exactly the compute nodes of the hive, and all of them take jobs. A
// drained node is an error, even if an administrator has drained it, because batch systems drain nodes that do not work. Drained
// nodes in o.Except are no error.
func (p Pool[N]) CheckNodes(ctx context.Context, o engine.CheckOptions) error {
	_, problems, err := p.compare(ctx, o)
	switch {
	case err != nil:
		return engine.LastLine(err)
	case len(problems) > 0:
		return errors.New(event.Abbreviate(problems, "; "))
	}
	return nil
}

// compare returns unready, the compute nodes of the hive that take no jobs, and problems, a text for each difference between hive
// and batch system.
func (p Pool[N]) compare(ctx context.Context, o engine.CheckOptions) (unready, problems []string, err error) {
	all, err := p.System.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range p.Head.NodesOf(Compute) {
		n, exists := all[name]
		delete(all, name)
		problem := " is not a member of the cluster"
		if exists {
			problem = n.Problem()
		}
		if status, _ := n.Status(); problem == "" || status.Reason != "" && slices.Contains(o.Except, name) || slices.Contains(o.Away, name) {
			continue
		}
		unready = append(unready, name)
		problems = append(problems, name+problem)
	}
	delete(all, p.Head.Node())
	for _, name := range nixeval.SortedNames(all) {
		if _, isMember := all[name].Status(); isMember {
			problems = append(problems, name+" is a member of the cluster, and is not in the hive")
		}
	}
	return unready, problems, nil
}
