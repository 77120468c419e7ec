package plan

import (
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/selection"
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

// Drains lists the nodes that the run drains, if they are members of a cluster. It is empty if the run drains no nodes.
type Drains struct {
	Change []string // are drained before they change
	Remove []string // nodes that are drained before they are removed from the cluster
	// Obsolete are those of the nodes in Remove whose machines are removed at the end of the run. They are drained before the
	// first node changes. Obsolete is empty if the run activates no system.
	Obsolete []string
	Leave    []string // nodes that leave their engine; they are drained before the first node changes
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
	for _, group := range c.groupByOrder(later) {
		var others []Node
		for _, n := range group {
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
			continue
		case n.Removes():
			d.Remove = append(d.Remove, n.Node.Name)
		default:
			d.Change = append(d.Change, n.Node.Name)
		}
		d.Leave = append(d.Leave, n.Node.Name)
	}
	d.Remove, d.Leave = append(d.Remove, removed...), append(d.Leave, removed...)
	if o.Goal.ActivatesNow() {
		d.Obsolete = removed
	}
	return d
}

// groupByOrder splits nodes into groups. A group has the members with the same order in the hive, and the group with the lowest
// order comes first. Nodes that are not members are in the last group.
func (c Cluster) groupByOrder(nodes []Node) [][]Node {
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
	var out [][]Node
	for _, order := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[order])
	}
	return out
}
