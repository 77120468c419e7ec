package plan

import (
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Actions of a run on a node.
const (
	WouldNothing = "unchanged"
	WouldKeys    = "keys only"    // the node runs the desired system, but its keys differ
	WouldDefault = "boot default" // the desired system runs, but another one would boot
	WouldSwitch  = "switch"
	WouldFirst   = "first deployment"
	WouldRefuse  = "refused" // Node.Err has the reason
	NotReachable = "unreachable"
	Away         = "away" // not reachable, and may be away
	NotBuilt     = "not built"
	WouldRemove  = "removed"     // its machine would be removed
	NotRunning   = "not running" // the machine of the node has to be started before the node can be inspected
)

// Options are the options of a run that decide what it does to each node.
type Options struct {
	node.Options
	WithoutKeys    bool            // keys are left as they are
	WithoutDrain   bool            // members of a running cluster change without a drain
	MaxUnavailable selection.Share // nodes that may change in one wave
}

// usesKeys reports whether the run replaces the keys of nodes by the keys of the hive.
func (o Options) usesKeys() bool {
	return !o.WithoutKeys && o.Goal != node.Push && o.Goal != node.DryActivate
}

// Observation is what is known about a node before the run changes it.
type Observation struct {
	node.Task
	Err      error      // why the node could not be inspected, or nil
	Built    bool       // whether Closure is set
	Recorded state.Node // the node's record in the state
	// Machine is the change of the node's machine before the node changes; Keep or empty: no change.
	Machine changes.Action
}

// Node is what a run does to one node.
type Node struct {
	Observation
	Action string // one of the constants above
	Keys   bool   // the node gets the keys of the hive, and others of nixbench are removed: all if the hive has none
	Err    error  // why the node cannot be deployed, or nil

	Changes bool // the run changes what the node runs, or its machine: its work is interrupted
	Drain   bool // a member is drained before the change. It is uncordoned afterwards, unless it is removed from the cluster
	Noop    bool // neither the system nor the machine of the node changes
	Copy    bool // the system can be copied to the node before the run changes the first node
	Joins   bool // the node may join the cluster after the change
}

// Restarts reports whether the node's machine is restarted or recreated before the node itself is changed.
func (p Node) Restarts() bool {
	return p.Machine == changes.Restart || p.Machine == changes.Recreate
}

// Removes reports whether the member is removed from its cluster. This is so if its machine is removed or recreated.
func (p Node) Removes() bool {
	return p.Machine == changes.Remove || p.Machine == changes.Recreate
}

func (p Node) CanDeploy() bool {
	return p.Err == nil && p.Action != NotBuilt && p.Action != NotReachable
}

// DecideNode returns what a run does to a node. It changes nothing: the command plan prints this decision, and apply executes it.
func DecideNode(o Observation, options Options) Node {
	p := Node{Observation: o, Joins: options.Goal.ActivatesNow(), Keys: options.usesKeys()}
	p.Action, p.Err = decideAction(o, options.Options)
	p.Unchanged = p.Action == WouldNothing
	activates := slices.Contains([]string{WouldSwitch, WouldDefault, WouldFirst}, p.Action)
	p.Changes = options.Goal.ActivatesNow() && activates || p.Machine == changes.Restart || p.Removes()
	p.Drain = p.Changes && !options.WithoutDrain
	p.Noop = (p.Action == WouldNothing || !options.Goal.Activates()) && !p.Restarts()
	// Do not copy the system early in two cases. A machine that restarts afterwards forgets which paths its garbage collector must
	// keep. A dry activation protects no path from the garbage collector.
	p.Copy = o.Built && options.Goal != node.DryActivate && !p.Restarts() && (p.Action == WouldSwitch || p.Action == WouldFirst)
	return p
}

// ActivateEarlier returns the plan of a node that goes back to a system that the node had before.
func ActivateEarlier(n nixeval.Node, options Options) Node {
	now := options.Goal.ActivatesNow()
	return Node{Observation: Observation{Task: node.Task{Node: n}}, Action: WouldSwitch, Changes: now, Drain: now && !options.WithoutDrain, Noop: !now}
}

// decideAction returns the action of the run on a node, such as WouldSwitch, and the reason if the node cannot be deployed.
func decideAction(o Observation, options node.Options) (string, error) {
	n, desired := o.Observed, node.TargetSystem(o.Closure, options)
	switch {
	case !o.Built && options.Goal != node.UploadKeys:
		return NotBuilt, nil
	case o.Machine == changes.Create, o.Machine == changes.Finish:
		return WouldFirst, nil
	case o.Machine == changes.Start, o.Machine == changes.Resume:
		return NotRunning, nil
	case o.Err != nil && o.Machine == changes.Recreate: // recreating the machine may repair the node
		return WouldFirst, nil
	case o.Err != nil:
		return NotReachable, o.Err
	case o.Machine != changes.Recreate && node.IsUnchanged(n, o.Closure, options):
		return WouldNothing, nil
	}
	if err := node.CheckReplaceable(o.Node.Name, n, o.Closure, o.Deployment, o.Recorded.Paths, options); err != nil {
		return WouldRefuse, err
	}
	switch {
	case o.Machine == changes.Recreate, o.Recorded.LastConfirmed == nil && len(n.Deployed) == 0 && n.Current != desired:
		return WouldFirst, nil
	case n.Current == desired && n.Profile != o.Closure.Out:
		return WouldDefault, nil
	}
	return WouldSwitch, nil
}
