package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/stages"
)

// maxOrderLines is the maximum number of waves that `nixbench plan` lists.
const maxOrderLines = 20

// writeOrder writes the waves in which nodes change, and which nodes are drained. It writes nothing if all nodes change at the
// same time.
func writeOrder(w io.Writer, previews []stages.Preview) {
	var waves [][]string
	var removed []string
	drains := false
	for _, p := range previews {
		if p.Action == plan.WouldRemove {
			removed = append(removed, p.Node)
		}
		if p.Wave == 0 {
			continue
		}
		for len(waves) < p.Wave {
			waves = append(waves, nil)
		}
		name := p.Node
		if p.Drained {
			name, drains = name+" (drained)", true
		}
		waves[p.Wave-1] = append(waves[p.Wave-1], name)
	}
	if len(waves) < 2 && !drains && (len(waves) == 0 || len(removed) == 0) {
		return
	}
	fmt.Fprintln(w, "\norder:")
	for i, nodes := range waves {
		if i == maxOrderLines && len(waves) > maxOrderLines+1 {
			fmt.Fprintf(w, "  and %d more waves\n", len(waves)-i)
			break
		}
		ui.WriteList(w, fmt.Sprintf("  %d. ", i+1), nodes, "     ")
	}
	if len(removed) > 0 {
		last := len(removed) - 1
		ui.WriteList(w, "  at the end: ", append(removed[:last:last], removed[last]+" removed"), "    ")
	}
}

// describeChanges returns the summary of a plan, in one line. It begins with the changes that cannot be undone.
func describeChanges(previews []stages.Preview) string {
	nodes, machines := map[string]int{}, map[changes.Action]int{}
	for _, p := range previews {
		nodes[p.Action]++
		if p.Machine != nil && p.Action != plan.WouldRemove {
			machines[p.Machine.Action]++
		}
	}
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	add(nodes[plan.WouldRemove], "removed")
	add(machines[changes.Recreate], "with a recreated machine")
	add(machines[changes.Restart], "with a restarted machine")
	add(machines[changes.Create], "with a new machine")
	for _, action := range []string{plan.WouldFirst, plan.WouldSwitch, plan.WouldDefault, plan.WouldKeys, plan.NotRunning, plan.NotReachable, plan.WouldRefuse, plan.NotBuilt, plan.WouldNothing} {
		add(nodes[action], action)
	}
	if len(parts) == 0 {
		return "nodes: none"
	}
	return "nodes: " + strings.Join(parts, ", ")
}
