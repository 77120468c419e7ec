package plan

import (
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Member is an observed member of the running cluster.
type Member struct {
	Engine engine.Engine
	Kind   string // of the engine, such as kubernetes
	engine.Status
	Recreated   bool // the machine was recreated, so that its disks have no data of the member
	Unreachable bool // the engine does not answer; the membership is that of the hive
}

// Cluster contains the members of a cluster as they are before the run, and as the hive wants them.
type Cluster struct {
	Members map[string]Member        // by node
	Desired map[string]engine.Member // the members according to the hive, by node
}

func (c Cluster) Running() bool { return len(c.Members) > 0 }

// IsCurrent reports whether a node is a member whose machine was not recreated.
func (c Cluster) IsCurrent(node string) bool {
	m, isMember := c.Members[node]
	return isMember && !m.Recreated
}

// IsOneByOne reports whether a wave is a single member that may only be changed one at a time.
func (c Cluster) IsOneByOne(wave []Node) bool {
	return len(wave) == 1 && c.Members[wave[0].Node.Name].OneByOne
}

// Drainable returns those of the nodes that are members of an engine and can be drained: the engine answers, and the machine of the
// node was not recreated.
func (c Cluster) Drainable(e engine.Engine, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		m := c.Members[node]
		return m.Engine != e || m.Recreated || m.Unreachable
	})
}

// Plan contains all that a run does to nodes: the change of each node, and the order of the changes.
type Plan struct {
	Nodes  []Node
	Waves  [][]Node // the nodes that can be deployed; those of a wave change at the same time
	Drains Drains
}

// Drains lists the nodes that the run drains, if they are members of a cluster. It is empty if the run drains no nodes. Those of them
// that leave their engine are drained before the first node changes.
type Drains struct {
	Change []string // are drained before they change
	Remove []string // nodes that are drained before they are removed from the cluster
	// Obsolete are those of the nodes in Remove whose machines are removed at the end of the run. They are drained before the
	// first node changes. Obsolete is empty if the run activates no system.
	Obsolete []string
}

// Decide orders nodes into waves, which change one after the other. removed are the nodes whose machines the run removes at its end.
//
//   - The first wave has the nodes on which nothing restarts. In a running cluster it also has the nodes that
//     are about to join, and, if share is all, the nodes without an engine.
//   - Then come the members, those with a lower order in the hive first. Of the members with the same order, each
//     one that may only be changed one at a time has a wave of its own, before the waves of the others, which have
//     at most share of these nodes.
//   - The nodes without an engine are in the waves of the last members.
func Decide(nodes []Node, removed []string, c Cluster, o Options) Plan {
	p := Plan{Nodes: nodes}
	if !o.WithoutDrain {
		p.Drains = decideDrains(nodes, removed, o)
	}
	share := o.MaxUnavailable
	var first, later []Node
	for _, n := range nodes {
		m, isMember := c.Members[n.Node.Name]
		_, isDesired := c.Desired[n.Node.Name]
		switch {
		case !n.CanDeploy():
		case n.Noop, c.Running() && isDesired && (!isMember || m.Recreated), c.Running() && !isMember && share.All():
			first = append(first, n)
		default:
			later = append(later, n)
		}
	}
	if share.All() && c.Running() {
		share = selection.One
	}
	groups := c.groupByOrder(later)
	for _, order := range slices.Sorted(maps.Keys(groups)) {
		var others []Node
		for _, n := range groups[order] {
			if c.Members[n.Node.Name].OneByOne {
				p.Waves = append(p.Waves, []Node{n})
			} else {
				others = append(others, n)
			}
		}
		p.Waves = slices.AppendSeq(p.Waves, slices.Chunk(others, max(1, share.Of(len(others)))))
	}
	if len(p.Waves) == 0 || c.Running() {
		p.Waves = append([][]Node{first}, p.Waves...)
	} else {
		p.Waves[0] = append(first, p.Waves[0]...)
	}
	return p
}

// decideDrains lists the nodes that the run must drain. removed are the nodes whose machines the run removes at its end.
func decideDrains(nodes []Node, removed []string, o Options) Drains {
	var d Drains
	for _, n := range nodes {
		switch {
		case !n.CanDeploy() || !n.Changes:
		case n.Removes():
			d.Remove = append(d.Remove, n.Node.Name)
		default:
			d.Change = append(d.Change, n.Node.Name)
		}
	}
	d.Remove = append(d.Remove, removed...)
	if o.Goal.ActivatesNow() {
		d.Obsolete = removed
	}
	return d
}

// groupByOrder returns the members by their order in the hive. Nodes that are not members are in the last group.
func (c Cluster) groupByOrder(nodes []Node) map[int][]Node {
	last := 0
	for _, n := range nodes {
		last = max(last, c.Desired[n.Node.Name].Order)
	}
	groups := map[int][]Node{}
	for _, n := range nodes {
		order := last
		m, isDesired := c.Desired[n.Node.Name]
		if _, isMember := c.Members[n.Node.Name]; isDesired && isMember {
			order = m.Order
		}
		groups[order] = append(groups[order], n)
	}
	return groups
}

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
	p := Node{Observation: o, Joins: options.Goal.ActivatesNow()}
	p.Keys = !options.WithoutKeys && options.Goal != node.Push && options.Goal != node.DryActivate
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
	unchanged, err := node.Compare(o.Task, o.Recorded.Paths, options)
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
	case unchanged && o.Machine != changes.Recreate:
		return WouldNothing, nil
	case err != nil:
		return WouldRefuse, err
	case o.Machine == changes.Recreate, o.Recorded.LastConfirmed == nil && len(n.Deployed) == 0 && n.Current != desired:
		return WouldFirst, nil
	case n.Current == desired && n.Profile != o.Closure.Out:
		return WouldDefault, nil
	}
	return WouldSwitch, nil
}
