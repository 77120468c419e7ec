package deploy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/nixeval"
)

// Inspect inspects the selected nodes, except for those that are away.
func (s *Session) Inspect(ctx context.Context) []fleet.Outcome[activate.Node] {
	s.noteAway()
	return inspect.Nodes(ctx, s.Fleet, s.Nodes, s.request.Parallel, s.Send)
}

// Examine checks whether everything that apply needs is there, such as a usable hypervisor.
func (s *Session) Examine(ctx context.Context) ([]provider.Finding, error) {
	recorded, err := s.State()
	if err != nil {
		return nil, err
	}
	return append(inspect.Computer(ctx), s.Machines.Examine(ctx, recorded)...), nil
}

// Check waits for the conditions that a healthy cluster fulfils, for the selected nodes and their cluster. It waits until ctx
// ends. If o asks for a deep check, it also runs test workloads in the cluster. With health, it also runs deployment.healthChecks.
func (s *Session) Check(ctx context.Context, o engine.CheckOptions, health bool) ([]check.Result, error) {
	defer s.noteAway()
	if o.Away = s.awayNames(); len(s.Nodes) == 0 {
		return []check.Result{}, nil
	}
	engines, err := s.Engines()
	if err != nil {
		return nil, err
	}
	if o.Deep && len(engines) == 0 {
		return nil, failure.NewUsage("--deep requires a cluster, and the nodes of the hive are not members of one")
	}
	look := func(e engine.Engine) check.Look { return engine.LookAt(e, selection.Names(s.Nodes)...) }
	conditions := inspect.NodeConditions(s.Fleet, s.Nodes, s.request.Parallel, nil, nil)
	conditions = append(conditions, inspect.EngineConditions(engines, s.Nodes, s.request.Parallel, o, look)...)
	if health {
		conditions = append(conditions, inspect.HealthConditions(s.Fleet, s.Nodes, s.request.Parallel)...)
	}
	return check.Await(ctx, conditions, s.Send)
}

// RunOnNodes calls f, which runs a command, for all selected nodes at once. The value of an outcome is the command's exit status.
func RunOnNodes(ctx context.Context, s *Session, f func(context.Context, *remote.Host, nixeval.Node) error) []fleet.Outcome[int] {
	return fleet.Each(ctx, s.Nodes, s.request.Parallel, func(ctx context.Context, n nixeval.Node) (int, error) {
		h, err := s.Fleet.Host(ctx, n)
		if err != nil {
			return 0, err
		}
		err = f(ctx, h, n)
		var failed *remote.RunError
		if errors.As(err, &failed) {
			return failed.ShellStatus(), nil
		}
		return 0, err
	})
}

type StatusOptions struct {
	Drift   bool // also evaluate the systems, and compare the nodes with them
	Figures bool // also read the use of processors, memory and disk
	Health  bool // also run deployment.healthChecks, once
}

// Status observes the selected nodes. It returns nil if no node could be observed.
func (s *Session) Status(ctx context.Context, o StatusOptions) (*inspect.ClusterStatus, error) {
	recorded, err := s.State()
	if err != nil {
		return nil, err
	}
	engines, enginesErr := s.Engines()
	manager := *s.Machines
	manager.Open = s.request.Hypervisors(nil)
	q := inspect.Query{Fleet: s.Fleet, Nodes: s.Nodes, Machines: &manager, Engines: engines, Recorded: recorded, Figures: o.Figures, Health: o.Health, Parallel: s.request.Parallel}
	if q.Send = s.Send; o.Drift { // show progress only for the evaluation, because it takes longer than the rest
		q.Send, q.Desired = nil, func() (map[string]nixeval.Closure, error) {
			return stages.Instantiate(ctx, s.Eval, s.Hive, s.Nodes, true, nil)
		}
	}
	status, err := inspect.Observe(ctx, q)
	for _, n := range s.Hive.Nodes {
		if i := slices.Index(s.awayNames(), n.Name); i >= 0 {
			row := inspect.StatusOf(fleet.Outcome[activate.Node]{Node: n, Err: errors.New(s.Away[i].Error)}, recorded.Nodes[n.Name], nil, time.Now())
			row.System, row.Role = inspect.Away, n.Role
			status.Rows, status.Notes = append(status.Rows, row), append(status.Notes, n.Name+": away: "+row.Error)
		}
	}
	return status, errors.Join(enginesErr, err)
}
