package deploy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Goal is how far apply goes. Four of them are [activate.Goal]s.
type Goal string

const (
	Switch      = Goal(activate.Switch)
	Boot        = Goal(activate.Boot)
	Test        = Goal(activate.Test)
	DryActivate = Goal(activate.DryActivate)
	Push        = Goal("push")        // build and copy, and leave the nodes as they are
	UploadKeys  = Goal("upload-keys") // only the keys, without evaluating systems
)

// activates tells whether systems are run, or made to boot.
func (g Goal) activates() bool { return g == Switch || g == Boot || g == Test }

// Options say how to apply.
type Options struct {
	Goal           Goal
	Parallel       int        // nodes at once; 0: all
	MaxUnavailable plan.Share // nodes of a wave
	KeepGoing      bool       // deploy what can be, although other nodes cannot be evaluated or built

	Confirm        time.Duration // 0: no rollback
	Settle         time.Duration // see activate.Request
	RollbackAll    bool          // one failure rolls back the whole run
	Specialisation string
	ActivateWith   string // "" or activate.NixosRebuild
	ReplaceUnknown bool   // whatever the hive says
	BuildOnTarget  *bool  // overrides the hive
	WithoutKeys    bool

	WithoutDrain bool // nodes of a living cluster keep their work while they change
	Drain        engine.DrainOptions
	CheckTimeout time.Duration // how long what the nodes run together may take to be well; 0: it is not looked at
	Some         bool          // only some of the hive's nodes are meant, so no machine is removed
	Recreate     bool          // machines whose image differs are made anew
	BootTimeout  time.Duration // how long one may take to be ready; 0: what is usual for it
}

// UsesKeys tells whether deployment.keys are uploaded.
func (o Options) UsesKeys() bool {
	return !o.WithoutKeys && o.Goal != Push && o.Goal != DryActivate
}

// Deployer has what a run works with.
type Deployer struct {
	Eval      *nixeval.Evaluator
	Fleet     *Fleet
	Copier    *closure.Copier
	Uploader  *secrets.Uploader
	Activator *activate.Activator
	Store     *state.Store
	Record    *state.Recorder
	Keep      func(map[string]nixeval.Closure) error // roots for what was built
	Engines   Engines                                // nil: nodes are deployed without a look at what they run together
	Machines  *Machines                              // nil: none are booted
	Send      event.Sink
}

// Apply evaluates, builds and deploys nodes. What became of each is in the record of
// the run; the error joins what went wrong.
//
// Machines that are missing are booted first; they boot while systems are evaluated and
// built, since their addresses are known before. A node waits for its own machine only.
//
// Looking at the nodes overlaps with evaluation and build, since it changes nothing.
// Nothing is changed before everything is built. Without waves, no node waits for
// another that does not answer, unless that may be a member of what lives.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := &run{Deployer: d, hive: hive, Options: o, found: map[string]activate.Node{}}
	machines, err := r.provision(ctx, nodes)
	r.machines = machines
	defer machines.end()
	if err != nil {
		r.skipAll(nodes, err)
		return err
	}
	looked := r.look(ctx, nodes, machines)
	closures, buildErr := r.permitted(ctx, nodes, looked)
	if buildErr != nil && (!o.KeepGoing || forbidden(buildErr) || ctx.Err() != nil) {
		machines.leave()
		looked.wait()
		r.skipAll(nodes, buildErr)
		return errors.Join(buildErr, machines.failures())
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(nodes)})
	cluster, err := r.cluster(ctx, closures, looked)
	switch {
	case err != nil:
		looked.wait()
		r.skipAll(nodes, err)
	case o.MaxUnavailable.Of(len(nodes)) == len(nodes) && len(cluster.members) == 0:
		err = r.together(ctx, cluster, nodes, closures, looked)
	default:
		todo, sortErr := r.sort(ctx, nodes, closures, looked)
		if err = r.mayDrain(ctx, cluster, todo); err != nil {
			for _, t := range todo {
				r.done(t.node, t.closure, state.Skipped, "skipped: members cannot be drained", nil)
			}
			err = errors.Join(sortErr, err)
			break
		}
		err = errors.Join(sortErr, r.waves(ctx, cluster, todo))
	}
	r.inviteAgain(ctx, cluster)
	switch {
	case !o.RollbackAll || !o.Goal.activates() || ctx.Err() != nil:
	case err != nil:
		err = errors.Join(err, r.restoreNodes(ctx, cluster))
	default:
		err = r.forgetKeys(ctx)
	}
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(nodes), Failed: err != nil, Text: r.summary()})
	if err == nil && buildErr == nil {
		err = r.tidy(ctx, machines, cluster)
	}
	if err == nil && buildErr == nil {
		err = r.proven(ctx, cluster, nodes, NodeConditions(r.Fleet, nodes, r.Parallel))
	}
	return errors.Join(buildErr, err)
}

// run is one Apply under way.
type run struct {
	*Deployer
	Options
	hive     *nixeval.Hive
	machines *boots
	nodeResults
	found map[string]activate.Node // what nodes were like before; see before
}

// looks has what was found on each node, once it is.
type looks map[string]*look

type look struct {
	over  chan struct{}
	found activate.Node
	err   error
}

func (l looks) wait() {
	for _, one := range l {
		<-one.over
	}
}

// look begins to ask every node what it runs, once its machine is ready.
func (r *run) look(ctx context.Context, nodes []nixeval.Node, machines *boots) looks {
	all := make(looks, len(nodes))
	ready := make(map[string]<-chan struct{}, len(nodes))
	for _, n := range nodes {
		all[n.Name] = &look{over: make(chan struct{})}
		ready[n.Name] = machines.of(n.Name)
	}
	go func() {
		for _, o := range EachReady(ctx, nodes, ready, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			one := all[n.Name]
			if one.err = machines.wait(n.Name); one.err == nil {
				one.found, one.err = r.lookAt(ctx, n)
			}
			close(one.over)
			return struct{}{}, nil
		}) {
			if o.Err != nil { // cancelled before its turn
				all[o.Node.Name].err = o.Err
				close(all[o.Node.Name].over)
			}
		}
	}()
	return all
}

// over has for each node when it was looked at.
func (l looks) over() map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, one := range l {
		out[name] = one.over
	}
	return out
}

func (r *run) lookAt(ctx context.Context, n nixeval.Node) (activate.Node, error) {
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Connect, Node: n.Name})
	h, err := r.Fleet.Host(ctx, n)
	if err == nil && r.Store.State().Rebooting(n.Name) != nil {
		if err = r.outlastReboot(ctx, n.Name, h); err == nil {
			h, err = r.Fleet.Host(ctx, n)
		}
	}
	var found activate.Node
	if err == nil {
		found, err = r.Activator.Inspect(ctx, n.Name, h)
		err = lookError(n.Name, err)
	}
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Connect, Node: n.Name, Failed: err != nil})
	return found, err
}

// closures evaluates and builds. Units that are built on their nodes are only
// evaluated.
func (r *run) closures(ctx context.Context, nodes []nixeval.Node) (map[string]nixeval.Closure, error) {
	if r.Goal == UploadKeys {
		return nil, nil
	}
	all, evalErr := Instantiate(ctx, r.Eval, r.hive, nodes, r.KeepGoing)
	if len(all) == 0 || evalErr != nil && !r.KeepGoing {
		return nil, evalErr
	}
	here := map[string]nixeval.Closure{}
	for unit, c := range all {
		if !r.onTarget(unit) {
			here[unit] = c
		}
	}
	var buildErr error
	if len(here) > 0 {
		var built []string
		built, buildErr = r.Eval.Build(ctx, here, builders(r.hive))
		for unit := range here {
			if !slices.Contains(built, unit) {
				delete(all, unit)
				delete(here, unit)
			}
		}
		wait := r.Send.Wait(event.Event{Phase: event.Build, Text: "Nix, to keep what was built from its garbage collector"})
		err := r.Keep(here)
		wait.End()
		if err != nil {
			return nil, errors.Join(evalErr, buildErr, err)
		}
	}
	return all, errors.Join(evalErr, buildErr)
}

func (r *run) onTarget(unit string) bool {
	if r.BuildOnTarget != nil {
		return *r.BuildOnTarget
	}
	return r.hive.Unit(unit).Deployment.BuildOnTarget
}

// sort finds out what there is to do. Nodes that cannot be reached, or have nothing to
// deploy, are through already.
func (r *run) sort(ctx context.Context, nodes []nixeval.Node, closures map[string]nixeval.Closure, looked looks) ([]task, error) {
	var todo []task
	var errs []error
	for _, n := range nodes {
		t, err := r.task(ctx, n, closures, looked[n.Name])
		if t != nil {
			todo = append(todo, *t)
		}
		errs = append(errs, err)
	}
	return todo, errors.Join(errs...)
}

// together deploys every node as soon as it has been looked at. A wave is made up of
// nodes that will change, so it has to know of all; but where there is only one, a
// node that does not answer would hold up the others for nothing.
func (r *run) together(ctx context.Context, cluster living, nodes []nixeval.Node, closures map[string]nixeval.Closure, looked looks) error {
	var errs []error
	for _, o := range EachReady(ctx, nodes, looked.over(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		t, err := r.task(ctx, n, closures, looked[n.Name])
		if t != nil {
			err = r.roll(ctx, cluster, *t)
		}
		return struct{}{}, err
	}) {
		r.notBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	looked.wait() // where cancelling has ended Each first
	return errors.Join(errs...)
}

func builders(hive *nixeval.Hive) string {
	if f := hive.Meta.MachinesFile; f != nil {
		return *f
	}
	return ""
}

// NodeError says which node failed, and where.
type NodeError struct {
	Node string
	Step event.Phase
	Err  error
}

// Error names the node once: what comes from below mostly names it, too.
func (e *NodeError) Error() string {
	return e.Node + ": " + strings.TrimPrefix(e.Err.Error(), e.Node+": ")
}

func (e *NodeError) Unwrap() error { return e.Err }
