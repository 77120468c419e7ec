package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/nixeval"
)

// unit is a row of the table of closures: a closure, the names of the evaluation units that contain its nodes, and these nodes.
type unit struct {
	Name, Path, Size, Copied string
	Nodes                    []string
	Width                    string

	units  []string
	copied copied // what all nodes of the row together have received
	copies int    // number of nodes to which paths were copied
}

// copied is the part of a closure that a node has received during the run.
type copied struct {
	paths       int
	bytes, size int64 // bytes of the copied paths, and of the whole closure; 0: not recorded
}

// listUnits returns a row for each different closure of a run. If a node had all paths of the closure before, the run
// records no size for this node. So the largest size that is recorded for a node of the closure is used.
func listUnits(s Subject) []unit {
	copies := map[string]copied{} // by node
	for _, e := range s.Events {
		if e.Phase == event.Copy && e.Kind == event.NodeEnd {
			c := copied{bytes: int64(e.Done), size: int64(e.Total)}
			_, _ = fmt.Sscanf(e.Text, "%d paths", &c.paths)
			copies[e.Node] = c
		}
	}
	var out []unit
	for _, n := range s.Run.Nodes {
		if n.Path == "" {
			continue
		}
		i := slices.IndexFunc(out, func(u unit) bool { return u.Path == n.Path })
		if i < 0 {
			i, out = len(out), append(out, unit{Path: n.Path})
		}
		u, c := &out[i], copies[n.Node]
		if !slices.Contains(u.units, n.Unit) {
			u.units = append(u.units, n.Unit)
		}
		u.Nodes = append(u.Nodes, n.Node)
		if c.paths > 0 {
			u.copies++
			u.copied.paths += c.paths
			u.copied.bytes += c.bytes
		}
		u.copied.size = max(u.copied.size, c.size)
	}
	var largest int64
	for _, u := range out {
		largest = max(largest, u.copied.size)
	}
	for i := range out {
		out[i].describe(largest)
	}
	slices.SortStableFunc(out, func(a, b unit) int { return nixeval.CompareNatural(a.Name, b.Name) })
	return out
}

// describe sets the texts and bar widths of the row. largest is the size of the largest closure of the table.
func (u *unit) describe(largest int64) {
	u.Size, u.Copied = "–", "nothing"
	if u.copied.size > 0 {
		u.Size = formatBytes(u.copied.size)
	}
	if u.copied.paths > 0 {
		u.Copied = fmt.Sprintf("%d paths", u.copied.paths)
		if u.copied.bytes > 0 {
			u.Copied += ", " + formatBytes(u.copied.bytes)
		}
		if u.copies > 1 {
			u.Copied += fmt.Sprintf(" to %d nodes", u.copies)
		}
	}
	slices.SortFunc(u.units, nixeval.CompareNatural)
	slices.SortFunc(u.Nodes, nixeval.CompareNatural)
	u.Name, u.Nodes = strings.Join(abbreviateNames(u.units, 3), ", "), abbreviateNames(u.Nodes, 6)
	u.Width = formatPercent(explain.Seconds(u.copied.size), explain.Seconds(largest))
}
