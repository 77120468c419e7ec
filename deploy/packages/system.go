package packages

import "reflect"

// SystemDiff is the difference between the closures of two systems.
type SystemDiff struct {
	Packages []Change `json:"packages"`
	Bytes    int64    `json:"bytes"` // by which the unpacked closure grows
	// Units and Etc are the units, and the other files of /etc, that differ; nil: the first system is not in the local store.
	Units *Files `json:"units,omitempty"`
	Etc   *Files `json:"etc,omitempty"`
}

// NodeDiff is the difference between the system that a node runs and its new system.
type NodeDiff struct {
	Node string
	Diff *SystemDiff // nil: the systems are the same, or the difference is unknown
}

type Group struct {
	Nodes []string    `json:"nodes"`
	Diff  *SystemDiff `json:"diff"`
}

// GroupNodes returns each difference once, with its nodes, in the order of the first node of each.
func GroupNodes(nodes []NodeDiff) []Group {
	var groups []Group
	for _, n := range nodes {
		if n.Diff == nil {
			continue
		}
		i := 0
		for i < len(groups) && !reflect.DeepEqual(groups[i].Diff, n.Diff) {
			i++
		}
		if i == len(groups) {
			groups = append(groups, Group{Diff: n.Diff})
		}
		groups[i].Nodes = append(groups[i].Nodes, n.Node)
	}
	return groups
}
