package stages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// RollbackTo is the target of a rollback. The zero value means the systems that the nodes ran before the last run.
type RollbackTo struct {
	Generation int       // number of a generation in the profile of each node; 0: not set
	Run        *runs.Run // the target is the system that this run deployed on each node; nil: not set
}

// Step is what a rollback or a reboot does on one node.
type Step struct {
	Node       nixeval.Node
	From       activate.Node
	Reboot     bool   // the node boots the system Path of its profile; otherwise it activates Path
	Path       string // the system to activate or boot
	Generation int    // number of this system's generation in the node's profile; 0: the profile does not contain it
	SkipReason string // why the node is not changed; empty if the node is changed
	Err        error  // why the node cannot be changed, or nil
}

// PlanRollback decides the target of each node. It returns an error if the target is invalid for the whole rollback; an error of one
// node is in the node's step. It calls inspect for the nodes that the rollback may change, and for no others.
//
// The last run is the latest run that changed one of these nodes or of the nodes that are away. A node that the last run did not
// change is not rolled back, because that would undo an earlier run.
func PlanRollback(nodes []nixeval.Node, away []string, recorded map[string]state.Node, to RollbackTo, inspect func([]nixeval.Node) []fleet.Outcome[activate.Node]) ([]Step, error) {
	var last *state.Deployment
	for _, name := range slices.Concat(away, selection.Names(nodes)) {
		if b := recorded[name].Before; b != nil && (last == nil || b.Time.After(last.Time)) {
			last = b
		}
	}
	steps := make([]Step, len(nodes))
	var lost []string
	var affected []nixeval.Node
	for i, n := range nodes {
		s := Step{Node: n}
		switch b := recorded[n.Name].Before; {
		case to.Generation != 0:
		case to.Run != nil:
			s.setRunTarget(to.Run)
		case last == nil || b != nil && b.Run == last.Run && b.Path == "":
			lost = append(lost, n.Name)
		case b == nil || b.Run != last.Run:
			s.SkipReason = "not changed by run " + last.Run
		default:
			s.Path = b.Path
		}
		if steps[i] = s; s.SkipReason == "" {
			affected = append(affected, n)
		}
	}
	if len(lost) > 0 {
		return nil, failure.WithHint(failure.NewUsage("roll back: there is no record of an earlier system of %s: no run from this state folder has changed it", strings.Join(lost, ", ")),
			"--to N selects a generation: nixbench generations lists them")
	}
	if len(affected) == 0 {
		return steps, nil
	}
	for _, o := range inspect(affected) {
		i := slices.IndexFunc(steps, func(s Step) bool { return s.Node.Name == o.Node.Name })
		steps[i].setObserved(o, to)
	}
	return steps, nil
}

// setObserved completes a step with the inspection of its node.
func (s *Step) setObserved(o fleet.Outcome[activate.Node], to RollbackTo) {
	s.From, s.Err = o.Value, o.Err
	switch {
	case s.Err != nil:
		return
	case to.Generation != 0:
		i := slices.IndexFunc(s.From.Generations, func(g activate.Generation) bool { return g.Number == to.Generation })
		if i < 0 {
			s.Err = node.NewGoneError(s.Node.Name, fmt.Sprintf("generation %d", to.Generation))
			return
		}
		s.Path, s.Generation = s.From.Generations[i].Path, to.Generation
	default:
		s.Generation = s.From.GenerationOf(s.Path)
	}
	if s.From.Current == s.Path && s.From.Profile == s.Path {
		s.SkipReason = "runs it already"
	}
}

// setRunTarget makes the system that run r deployed on the node the target, or sets s.SkipReason if there was none.
func (s *Step) setRunTarget(r *runs.Run) {
	i := slices.IndexFunc(r.Nodes, func(n state.NodeResult) bool { return n.Node == s.Node.Name })
	switch {
	case i < 0:
		s.SkipReason = "was not part of run " + r.ID
	case r.Nodes[i].Path == "" || r.Nodes[i].Outcome != state.Switched && r.Nodes[i].Outcome != state.Unchanged:
		s.SkipReason = "run " + r.ID + " left no new system on it"
	default:
		s.Path = r.Nodes[i].Path
	}
}

func (s Step) ChangesNode() bool { return s.Err == nil && s.SkipReason == "" }

func (s Step) String() string {
	switch {
	case s.Err != nil:
		return fleet.Brief(s.Node.Name, s.Err)
	case s.SkipReason != "":
		return "stays: " + s.SkipReason
	}
	from, to := "what runs now", s.Path
	if g := s.From.GenerationOf(s.From.Current); g != 0 {
		from = fmt.Sprintf("generation %d", g)
	}
	if s.Generation != 0 {
		to = fmt.Sprintf("generation %d", s.Generation)
	}
	return from + " → " + to
}

// PlanReboot returns the steps that reboot inspected nodes; with ifNeeded, only those that would boot another kernel.
func PlanReboot(inspected []fleet.Outcome[activate.Node], ifNeeded bool) []Step {
	steps := make([]Step, len(inspected))
	for i, o := range inspected {
		steps[i] = Step{Node: o.Node, From: o.Value, Reboot: true, Path: o.Value.Profile, Err: o.Err}
		if ifNeeded && !o.Value.RebootNeeded() {
			steps[i].SkipReason = "needs no reboot"
		}
	}
	return steps
}

// ExecuteSteps carries out the steps of a rollback or a reboot. The record of the run contains the result of each node.
func (d *Deployer) ExecuteSteps(ctx context.Context, steps []Step, o Options) ([]state.NodeResult, error) {
	o.Goal = node.Switch
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(steps)})
	var changing []Step
	var results []rollout.Result
	var errs []error
	for _, s := range steps {
		if s.ChangesNode() {
			changing = append(changing, s)
			continue
		}
		r := s.newResult()
		if s.Err != nil {
			r.Outcome = state.Failed
		}
		d.report(r)
		results, errs = append(results, r), append(errs, s.Err)
	}
	done, err := d.update(ctx, changing, o, func(ctx context.Context, s Step) rollout.Result {
		if s.Reboot {
			return d.rebootNode(ctx, s, o, func(activate.Node) error { return d.UploadVolatileKeys(ctx, s.Node) })
		}
		r := s.newResult()
		done, err := d.RollBack(ctx, s.Node, s.From, s.Path, s.Generation, o.Options.Options)
		if err == nil && !done.Activation.OnlyBoots() { // the hive may be newer than the system, so a health check that fails does not undo the rollback
			if err = d.CheckHealth(ctx, s.Node, o.Options.Options, "it keeps the earlier system"); err != nil {
				done.Outcome = state.Failed
			}
		}
		r.Outcome, r.After, r.Text, r.Err = done.Outcome, done.After(), done.Text, err
		return r
	})
	results, err = append(results, done...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(steps), Failed: err != nil, Text: formatCounts(results, node.Switch)})
	out := make([]state.NodeResult, len(results))
	for i, r := range results {
		out[i] = toNodeResult(r)
	}
	return out, err
}

func (s Step) newResult() rollout.Result {
	r := rollout.NewResult(s.Node, s.Path, state.Unchanged, s.String(), s.Err)
	r.Before = s.From.GenerationOf(s.From.Current)
	return r
}

// update calls change for each step, in the waves of a rolling update. The nodes change to systems that they have already.
func (d *Deployer) update(ctx context.Context, steps []Step, o Options, change func(context.Context, Step) rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]Step{}
	var nodes []nixeval.Node
	var all []plan.Node
	for _, s := range steps {
		byNode[s.Node.Name] = s
		nodes, all = append(nodes, s.Node), append(all, plan.ActivateEarlier(s.Node, o.Options))
	}
	cluster, err := d.observer(d.Fleet.Hive(), func(name string) activate.Node { return byNode[name].From }, o.Drain).Observe(ctx)
	if err != nil {
		var results []rollout.Result
		for _, n := range nodes {
			results = append(results, rollout.NewResult(n, "", state.Skipped, "", err))
			d.report(results[len(results)-1])
		}
		return results, err
	}
	cluster = cluster.WithLeaving()
	x := rollout.Rollout{Cluster: cluster, Parallel: o.Parallel, Done: d.report}
	results, err := x.Execute(ctx, plan.Decide(all, nil, cluster.Cluster, o.Options), func(ctx context.Context, n plan.Node, _ func(context.Context)) rollout.Result {
		return change(ctx, byNode[n.Node.Name])
	})
	return results, errors.Join(err, cluster.UncordonReturned(ctx, nodes))
}

// observer returns an observer of the cluster, which may start systemd units of an engine that does not answer.
func (d *Deployer) observer(hive *nixeval.Hive, observed func(node string) activate.Node, o engine.DrainOptions) rollout.Observer {
	return rollout.Observer{Engines: d.Engines, Fleet: d.Fleet, Hive: hive, Store: d.Store, Observed: observed, MayStart: true, Drain: o, Send: d.Send}
}

// rebootNode reboots the node of a step, waits until it has booted, calls finish with the state of the node, which uploads its keys, and
// waits until its health checks pass.
func (d *Deployer) rebootNode(ctx context.Context, s Step, o Options, finish func(activate.Node) error) rollout.Result {
	after, text, err := d.Reboot(ctx, s.Node, s.From.BootID, o.RebootTimeout)
	if err == nil {
		err = finish(after)
	}
	if err == nil {
		err = d.CheckHealth(ctx, s.Node, o.Options.Options, "it has rebooted")
	}
	r := rollout.NewResult(s.Node, after.Booted, node.Rebooted, text, err)
	if r.After = after.GenerationOf(after.Booted); err != nil {
		r.Outcome, r.Text = state.Failed, ""
	}
	return r
}

// UploadVolatileKeys uploads the keys of a booted node that are in /run, because the boot has deleted them. It uploads none to a node
// that nixbench has not deployed, and removes none.
func (d *Deployer) UploadVolatileKeys(ctx context.Context, n nixeval.Node) (err error) {
	defer func() { err = fleet.NewNodeError(n.Name, event.Keys, err) }()
	deployment, err := d.Machines.NodeDeployment(n, d.Store)
	if err != nil {
		return err
	}
	deployment.Keys = maps.Clone(deployment.Keys)
	maps.DeleteFunc(deployment.Keys, func(_ string, k nixeval.Key) bool { return !strings.HasPrefix(k.PathOnNode(), "/run/") })
	if len(deployment.Keys) == 0 || d.Store.Node(n.Name).LastConfirmed == nil {
		return nil
	}
	set, err := d.Uploader.Load(ctx, n.Name, deployment, secrets.All)
	if err != nil {
		return err
	}
	d.Fleet.Drop(n.Name) // close the connection to the system that ran before the boot
	h, err := d.Fleet.Host(ctx, n)
	if err != nil {
		return err
	}
	set.KeepOld, set.Restart = true, true
	_, err = d.Uploader.Upload(ctx, h, set)
	return err
}

// rebootDeployed reboots nodes that this run has deployed without an error, and returns their new results. It does not reboot a
// node that has booted the system of its profile and still runs this system. Cluster members are drained before. Keys are uploaded
// again after the reboot, because a reboot deletes the keys in /run.
func rebootDeployed(ctx context.Context, r *run, results []rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]rollout.Result{}
	var deployed []nixeval.Node
	for _, result := range results {
		if result.Task != nil && result.Err == nil {
			byNode[result.Node.Name], deployed = result, append(deployed, result.Node)
		}
	}
	var steps []Step
	var failed []rollout.Result
	var errs []error
	for _, o := range fleet.Each(ctx, deployed, r.Parallel, r.Inspect) {
		switch n := o.Value; {
		case o.Err != nil:
			result := byNode[o.Node.Name]
			result.Outcome, result.Text, result.Err = state.Failed, "", o.Err
			r.report(result)
			failed, errs = append(failed, result), append(errs, o.Err)
		case n.Profile != "" && (n.Booted != n.Profile || n.Current != n.Profile): // the node has not booted the system of its profile, or has switched to another system since
			steps = append(steps, Step{Node: o.Node, From: n, Reboot: true})
		}
	}
	if len(steps) == 0 {
		return failed, errors.Join(errs...)
	}
	o := r.Options
	o.Goal = node.Switch
	rebooted, err := r.update(ctx, steps, o, func(ctx context.Context, s Step) rollout.Result {
		deployed := byNode[s.Node.Name]
		result := r.rebootNode(ctx, s, o, func(after activate.Node) error {
			t := *deployed.Task
			if t.Observed, t.Unchanged = after, true; after.Current != t.Closure.Out {
				return activate.NewWrongBootError(s.Node.Name, t.Closure.Out, after.Current)
			}
			_, err := r.Deploy(ctx, t, o.Options.Options) // records the deployment as confirmed, because the node already runs the system
			return err
		})
		result.Before = deployed.Before
		return result
	})
	return append(failed, rebooted...), errors.Join(append(errs, err)...)
}
