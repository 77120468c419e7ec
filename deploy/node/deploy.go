package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/health"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Task is the deployment of one node, with all that it needs: the system, the keys and the inspection of the node.
type Task struct {
	Node          nixeval.Node
	Deployment    nixeval.Deployment // the node's deployment options
	Closure       nixeval.Closure    // the desired system of the node
	BuildOnTarget bool
	Observed      activate.Node // state of the node before the run
	Unchanged     bool          // the node already runs the desired system; only keys may differ
	Transferred   bool          // Transfer has succeeded for this task, so Deploy does not transfer the system
	// KeySet has the keys that the node has after the deployment; other keys that nixbench has uploaded earlier are removed. Nil
	// means that the keys on the node are not changed.
	KeySet *secrets.Set

	AfterLogin func(context.Context) // see activate.Request
}

// engineKind returns the kind of the node's engine in the hive, or an empty string.
func (t Task) engineKind() string {
	if t.Deployment.Engine == nil {
		return ""
	}
	return t.Deployment.Engine.Kind
}

// membership returns the membership of the node in its engine, or nil.
func (t Task) membership() *state.Membership {
	return state.NewMembership(t.Node.Role, t.Deployment.Engine)
}

// Result is the result of a change of one node.
type Result struct {
	Outcome state.Outcome
	Text    string
	// Activation is nil if no system was activated, or if another run is changing the node.
	Activation *activate.Result

	unchecked bool // the node runs the system since this change, and the health checks were not run
}

// After returns the number of the generation that the node runs after the activation; 0 if it is unknown.
func (r Result) After() int {
	if r.Activation == nil {
		return 0
	}
	return r.Activation.After.GenerationOf(r.Activation.After.Current)
}

// Deploy copies the closure to the node, uploads the keys that are due before the activation, activates the system, and uploads
// the other keys. If the activation fails, it restores the previous keys of the node.
func (c *Changer) Deploy(ctx context.Context, t Task, o Options) (Result, error) {
	result, err := c.runDeploySteps(ctx, t, o)
	var lost *activate.LostSightError
	if err != nil && ctx.Err() != nil && !errors.As(err, &lost) {
		// report why the run was cancelled, and not an error that the cancellation caused
		err = fleet.NewNodeError(t.Node.Name, event.Deploy, context.Cause(ctx))
	}
	return result, err
}

func (c *Changer) runDeploySteps(ctx context.Context, t Task, o Options) (Result, error) {
	failed := Result{Outcome: state.Failed}
	h, err := c.Fleet.Host(ctx, t.Node)
	if err != nil {
		return failed, err
	}
	if t.Unchanged || o.Goal == UploadKeys {
		return c.updateKeys(ctx, h, t, o)
	}
	if !t.Transferred {
		if err := c.Transfer(ctx, t, o); err != nil {
			return failed, err
		}
	}
	switch o.Goal {
	case Push:
		return Result{Outcome: state.Switched, Text: "copied"}, nil
	case DryActivate:
		result, err := c.Activator.Activate(ctx, t.Node.Name, h, c.newRequest(t, o))
		if err != nil {
			return failed, fleet.NewNodeError(t.Node.Name, event.Activate, err)
		}
		return Result{Outcome: state.Unchanged, Text: formatDryActivation(result)}, nil
	}
	recovered, err := c.finishPreviousActivation(ctx, h, t, o)
	if err != nil {
		return failed, err
	}
	before, err := c.uploadKeys(ctx, h, t, o, secrets.Pre)
	if err != nil {
		return failed, err // the node has restored its previous keys
	}
	result, err := c.activateTask(ctx, h, t, o, recovered)
	if err != nil {
		return result, errors.Join(err, c.restoreKeys(ctx, h, t, err))
	}
	if result.Activation == nil || hasKeysAfterSwitch(t, o, before, result.Activation.After) {
		_, err = c.uploadKeys(ctx, h, t, o, secrets.Post)
	}
	if err == nil && result.unchecked {
		err = c.CheckHealth(ctx, t.Node, o, "it was not rolled back")
	}
	if err != nil {
		result.Outcome, result.Text = state.Failed, ""
	}
	return result, err
}

// confirmUnchanged updates the state for a node that already runs the desired system. It removes the intents of killed runs from
// the state. For the goal switch, it also records the system as confirmed.
func (c *Changer) confirmUnchanged(t Task, o Options) error {
	name := t.Node.Name
	recorded := c.Store.State()
	kind := cmp.Or(t.Observed.Engine, t.engineKind())
	if len(recorded.OpenIntents(c.RunID, name)) == 0 {
		n := recorded.Nodes[name]
		if o.Goal != Switch || n.LastConfirmed != nil && n.LastConfirmed.Path == t.Closure.Out && n.Engine == kind && n.HasMembership(t.engineKind(), t.membership()) {
			return nil
		}
	}
	return c.Store.Update(func(s *state.State) error {
		s.DropOpenIntents(c.RunID, name)
		if o.Goal == Switch {
			s.Confirm(name, newDeployment(t.Observed, t.Closure.Out, c.RunID))
			s.RecordEngine(name, kind)
			if m := t.membership(); m != nil {
				s.RecordMembership(name, t.engineKind(), *m)
			}
		}
		return nil
	})
}

// Transfer copies the system to the node, or builds the system there, and makes a garbage collector root for it on the node. Deploy
// does it, unless it was done before.
func (c *Changer) Transfer(ctx context.Context, t Task, o Options) error {
	h, err := c.Fleet.Host(ctx, t.Node)
	if err != nil {
		return err
	}
	name := t.Node.Name
	c.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: name})
	ended := event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: name, Text: "built there"}
	root := "nixbench-wanted" // until the profile points to the system, the node's garbage collector could delete it
	if o.Goal == DryActivate {
		root = ""
	}
	if t.BuildOnTarget {
		err = c.Copier.BuildOnTarget(ctx, name, h, t.Closure.Drv, t.Closure.Out, root)
	} else {
		var stats closure.Stats
		stats, err = c.Copier.Copy(ctx, name, h, t.Closure.Out, root)
		ended.Text = fmt.Sprintf("%d paths", stats.Paths)
		if err == nil { // after an error, stats counts the paths that were to be copied, and not the copied paths
			ended.Done, ended.Total = int(stats.Bytes), int(stats.Closure)
		}
	}
	ended.Failed = err != nil
	c.Send.Send(ended)
	return fleet.NewNodeError(name, event.Copy, err)
}

// newRequest returns the request with which package activate activates the system of a task.
func (c *Changer) newRequest(t Task, o Options) activate.Request {
	return activate.Request{
		Run: c.RunID, Path: t.Closure.Out, Goal: activate.Goal(o.Goal),
		Specialisation: o.Specialisation, Confirm: o.Confirm, SettleTime: o.SettleTime, Activator: o.ActivateWith,
		ReplaceUnknown: o.ReplaceUnknown || t.Deployment.ReplaceUnknownProfiles,
		Known:          c.Store.Node(t.Node.Name).Paths,
		Observed:       &t.Observed,
		AfterLogin:     t.AfterLogin,
	}
}

// Compare reports whether the node already has what the goal asks for: it runs the desired system, boots it, or both. The error says that
// the node does not run NixOS, or that it runs or boots a system that must not be replaced. known contains the store paths of the
// systems that this computer has deployed. Compare is called before anything is copied to the node.
func Compare(t Task, known []string, o Options) (unchanged bool, err error) {
	runs, goal := TargetSystem(t.Closure, o), activate.Goal(o.Goal)
	switch {
	case !o.Goal.Activates() || runs == "" || t.Observed.HasUnfinishedRun(): // Activate checks it after it has finished that run
		return false, nil
	case t.Observed.HasReached(goal, t.Closure.Out, runs):
		return true, nil
	case !t.Observed.NixOS:
		return false, activate.NewNotNixOSError(t.Node.Name)
	}
	r := activate.Request{Path: t.Closure.Out, ReplaceUnknown: o.ReplaceUnknown || t.Deployment.ReplaceUnknownProfiles, Known: known}
	return false, r.CheckReplaceable(t.Node.Name, t.Observed.WithDesired(runs))
}

// TargetSystem returns the store path that the node will report as its system after the deployment. It returns "" if the user has
// chosen a specialisation and the closure is not in the local store.
func TargetSystem(closure nixeval.Closure, o Options) string {
	if o.Specialisation == "" {
		return closure.Out
	}
	system, _ := filepath.EvalSymlinks(filepath.Join(closure.Out, "specialisation", o.Specialisation))
	return system
}

// activateTask activates the task's system on the node. recovered means that an unfinished activation of a killed run was finished
// or undone on the node before.
func (c *Changer) activateTask(ctx context.Context, h activate.Host, t Task, o Options, recovered bool) (Result, error) {
	name := t.Node.Name
	request := c.newRequest(t, o)
	if t.KeySet != nil {
		if late := t.KeySet.At(secrets.Post); len(late.Keys) > 0 {
			request.AfterSwitch = func(ctx context.Context) bool { return c.uploadLateKeys(ctx, h, late, o) }
		}
	}
	checks, err := c.healthChecks(ctx, t.Node, o)
	if err != nil {
		return Result{Outcome: state.Failed}, err
	}
	checked := false
	request.HealthTime, request.CheckHealth = checks.Limit(), func(ctx context.Context) error {
		checked = true
		return checks.Await(ctx, event.Confirm, c.Send)
	}
	activation, outcome, err := c.ApplySystem(ctx, name, h, Target{
		Before: t.Observed, Request: request, Recovered: recovered, Kind: t.engineKind(), Membership: t.membership(),
	})
	result := Result{Outcome: outcome}
	var busy *activate.BusyError
	if activation.Changed && !errors.As(err, &busy) { // another run is changing a busy node
		result.Activation = &activation
	}
	if err != nil {
		return result, fleet.NewNodeError(name, event.Activate, err)
	}
	result.unchecked = !checked && (activation.Changed || recovered || activation.PreviousRun != nil) && !activation.OnlyBoots()
	result.Text = formatActivation(activation, t.Observed)
	return result, nil
}

// healthChecks returns the health checks that a change of a node with these options runs.
func (c *Changer) healthChecks(ctx context.Context, n nixeval.Node, o Options) (health.Checks, error) {
	if o.WithoutHealthChecks || !o.Goal.ActivatesNow() {
		return health.Checks{}, nil
	}
	return health.Of(ctx, c.Fleet, n)
}

// CheckHealth waits until the health checks of a changed node pass. It does not roll the node back: result says in the error what the
// node does.
func (c *Changer) CheckHealth(ctx context.Context, n nixeval.Node, o Options, result string) error {
	checks, err := c.healthChecks(ctx, n, o)
	if err == nil {
		err = checks.Await(ctx, event.Check, c.Send)
	}
	if err != nil {
		return fleet.NewNodeError(n.Name, event.Activate, fmt.Errorf("%w; %s", err, result))
	}
	return nil
}
