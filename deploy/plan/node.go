package plan

import (
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Actions of a run on a node.
const (
	WouldNothing = "unchanged"
	WouldKeys    = "keys only"    // the node runs the desired system
	WouldDefault = "boot default" // the desired system runs, but another one would boot
	WouldSwitch  = "switch"
	WouldFirst   = "first deployment"
	WouldRefuse  = "refused" // see NodePlan.Err
	NotReachable = "unreachable"
	NotBuilt     = "not built"
	WouldRemove  = "removed"     // its machine would be removed
	NotRunning   = "not running" // its machine has to be started before the node can be inspected
)

// Observation is what is known about a node before the run changes it.
type Observation struct {
	Node       nixeval.Node
	Deployment nixeval.Deployment // the node's deployment options in the hive
	Observed   activate.Node
	Err        error           // why the node could not be inspected, or nil
	Closure    nixeval.Closure // its system
	Built      bool            // whether there is one
	Recorded   state.Node      // what the state has recorded
	// Machine is what happens to its machine before the node changes; Keep, or empty, if nothing does.
	Machine provision.Action
}

// NodePlan is what a run does to one node.
type Node struct {
	Action  string // one of the constants above
	Machine provision.Action
	Err     error // why the node cannot be deployed, or nil
}

// Unchanged reports whether the node already runs or boots the system that the goal asks for.
func (p Node) Unchanged() bool { return p.Action == WouldNothing }

// Restarts reports whether the machine is restarted or recreated before the node changes.
func (p Node) Restarts() bool {
	return p.Machine == provision.Restart || p.Machine == provision.Recreate
}

// IsNoop reports whether the plan restarts nothing on the node.
func (p Node) IsNoop() bool { return p.Unchanged() && !p.Restarts() }

// NeedsDrain reports whether a member is drained before the change. A member that is removed from its cluster
// is drained for good, see [NodePlan.Removes].
func (p Node) NeedsDrain(goal node.Goal) bool {
	activates := goal.ActivatesNow() && slices.Contains([]string{WouldSwitch, WouldDefault, WouldFirst}, p.Action)
	return !p.Removes() && (p.Machine == provision.Restart || activates)
}

// Removes reports whether a member is removed from its cluster, for good or because its machine is recreated.
func (p Node) Removes() bool {
	return p.Machine == provision.Remove || p.Machine == provision.Recreate
}

// Decide decides what a run does to a node. It has no effects: plan prints the decision, apply executes it.
func Decide(o Observation, options node.Options) Node {
	p := Node{Machine: o.Machine}
	p.Action, p.Err = decideAction(o, options)
	return p
}

func decideAction(o Observation, options node.Options) (string, error) {
	n, desired := o.Observed, node.TargetSystem(o.Closure, options)
	switch {
	case !o.Built && options.Goal != node.UploadKeys:
		return NotBuilt, nil
	case o.Machine == provision.Create, o.Machine == provision.Finish:
		return WouldFirst, nil
	case o.Machine == provision.Start, o.Machine == provision.Resume:
		return NotRunning, nil
	case o.Machine == provision.Reconnect:
		return NotReachable, nil
	case o.Err != nil && o.Machine == provision.Recreate: // recreating the machine may repair the node
		return WouldFirst, nil
	case o.Err != nil:
		return NotReachable, o.Err
	case o.Machine != provision.Recreate && node.IsUnchanged(n, o.Closure, options):
		return WouldNothing, nil
	}
	if err := node.CheckReplaceable(o.Node.Name, n, o.Closure, o.Deployment, o.Recorded.Paths, options); err != nil {
		return WouldRefuse, err
	}
	switch {
	case o.Machine == provision.Recreate, o.Recorded.LastConfirmed == nil && len(n.Deployed) == 0 && n.Current != desired:
		return WouldFirst, nil
	case n.Current == desired && n.Profile != o.Closure.Out:
		return WouldDefault, nil
	}
	return WouldSwitch, nil
}
