package deploy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
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
	RollbackAll    bool          // one failure takes back the whole run
	Specialisation string
	ActivateWith   string // "" or activate.NixosRebuild
	ReplaceUnknown bool   // whatever the hive says
	BuildOnTarget  *bool  // overrides the hive
	WithoutKeys    bool

	Some        bool          // only some of the hive's nodes are meant, so no machine is removed
	Recreate    bool          // machines whose image differs are made anew
	BootTimeout time.Duration // how long one may take to be ready; 0: what is usual for it
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
// another that does not answer.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := &run{Deployer: d, hive: hive, Options: o, found: map[string]activate.Node{}}
	machines, err := r.provision(ctx, nodes)
	defer machines.end()
	if err != nil {
		r.skipAll(nodes, err)
		return err
	}
	looked := r.look(ctx, nodes, machines)
	closures, buildErr := r.closures(ctx, nodes)
	if buildErr != nil && (!o.KeepGoing || ctx.Err() != nil) {
		machines.leave()
		looked.wait()
		r.skipAll(nodes, buildErr)
		return errors.Join(buildErr, machines.failures())
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(nodes)})
	if o.MaxUnavailable.Of(len(nodes)) == len(nodes) {
		err = r.together(ctx, nodes, closures, looked)
	} else {
		todo, sortErr := r.sort(ctx, nodes, closures, looked)
		err = errors.Join(sortErr, r.waves(ctx, todo))
	}
	if err != nil && o.RollbackAll && o.Goal.activates() && ctx.Err() == nil {
		err = errors.Join(err, r.takeBackAll(ctx))
	}
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(nodes), Failed: err != nil, Text: r.summary()})
	if err == nil && buildErr == nil {
		err = r.tidy(ctx, machines)
	}
	return errors.Join(buildErr, err)
}

// run is one Apply under way.
type run struct {
	*Deployer
	Options
	hive *nixeval.Hive
	tally
	found map[string]activate.Node // what nodes were like before; see before
}

// task is what there is to do for one node.
type task struct {
	node    nixeval.Node
	closure nixeval.Closure
	same    bool // runs the wanted system already; only keys may have changed
	keys    secrets.Set
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
	var found activate.Node
	if err == nil {
		found, err = r.Activator.Inspect(ctx, n.Name, h)
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
		if err := r.Keep(here); err != nil {
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

// task is what there is to do for one node, once it has been looked at; or nil.
func (r *run) task(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, looked *look) (*task, error) {
	<-looked.over
	c, have := closures[n.Unit]
	switch {
	case !have && r.Goal != UploadKeys:
		r.done(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case looked.err != nil:
		r.done(n, c, state.Failed, "", looked.err)
		return nil, looked.err
	}
	r.mu.Lock()
	r.found[n.Name] = looked.found
	r.mu.Unlock()
	t := &task{node: n, closure: c, same: r.same(looked.found, c)}
	if r.WithoutKeys || r.Goal == Push || r.Goal == DryActivate {
		return t, nil
	}
	// All keys, so that a mistake here is found before anything is changed there.
	var err error
	t.keys, err = r.Uploader.Load(ctx, n.Name, r.hive.Unit(n.Unit).Deployment, secrets.All)
	if err != nil {
		err = &NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.done(n, c, state.Failed, "", err)
		return nil, err
	}
	return t, nil
}

// foundOn is what was found on a node before anything was done there.
func (r *run) foundOn(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[n.Name]
}

// same tells whether the node is already where the goal would bring it.
func (r *run) same(found activate.Node, c nixeval.Closure) bool {
	return r.Specialisation == "" && r.Goal.activates() && found.At(activate.Goal(r.Goal), c.Out)
}

// together deploys every node as soon as it has been looked at. A wave is made up of
// nodes that will change, so it has to know of all; but where there is only one, a
// node that does not answer would hold up the others for nothing.
func (r *run) together(ctx context.Context, nodes []nixeval.Node, closures map[string]nixeval.Closure, looked looks) error {
	var errs []error
	for _, o := range EachReady(ctx, nodes, looked.over(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		t, err := r.task(ctx, n, closures, looked[n.Name])
		if t != nil {
			err = r.deploy(ctx, *t)
		}
		return struct{}{}, err
	}) {
		r.notBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	looked.wait() // where cancelling has ended Each first
	return errors.Join(errs...)
}

// waves deploys a wave after the other, and stops after one with a failure.
func (r *run) waves(ctx context.Context, todo []task) error {
	byName := map[string]task{}
	var rest, changing []nixeval.Node
	for _, t := range todo {
		byName[t.node.Name] = t
		if t.same || !r.Goal.activates() {
			rest = append(rest, t.node) // nothing restarts there, so no wave need wait for it
		} else {
			changing = append(changing, t.node)
		}
	}
	waves := plan.Waves(changing, r.MaxUnavailable)
	if len(waves) == 0 {
		waves = append(waves, nil)
	}
	waves[0] = append(rest, waves[0]...)
	for i, wave := range waves {
		var errs []error
		for _, o := range Each(ctx, wave, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			return struct{}{}, r.deploy(ctx, byName[n.Name])
		}) {
			r.notBegun(o.Node, o.Err)
			errs = append(errs, o.Err)
		}
		if err := errors.Join(errs...); err != nil {
			for _, later := range waves[i+1:] {
				for _, n := range later {
					r.done(n, byName[n.Name].closure, state.Skipped, "skipped: a node of the wave before failed", nil)
				}
			}
			return err
		}
	}
	return nil
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
