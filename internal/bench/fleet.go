package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/state"
)

const (
	memoryBudget = 300 << 20 // bytes
	systems      = 10        // number of different systems
)

// benchFleet measures an apply to many nodes: first with healthy nodes, then with one node that does not
// respond.
func benchFleet(ctx context.Context, dir string, args []string) error {
	set := flag.NewFlagSet("fleet", flag.ContinueOnError)
	nodes := set.Int("nodes", 1000, "how many `nodes`")
	activation := set.Duration("activation", 200*time.Millisecond, "how long a switch takes on a node")
	cpu := set.String("cpuprofile", "", "write a profile of the first apply to this `file`")
	heap := set.String("memprofile", "", "write its heap, with all connections open, to this `file`")
	if err := set.Parse(args); err != nil {
		return err
	}
	sim, err := startNodes(ctx, assignSystems(*nodes, systems, "0"), *activation)
	if err != nil {
		return err
	}
	defer sim.stop()
	if err := writeSSHConfig(dir, sim.Known); err != nil {
		return err
	}
	fmt.Printf("%d nodes in another process, %d systems, %v to switch; evaluation and build take no time\n\n", *nodes, systems, *activation)
	t := &table{}
	version := 0
	for _, parallel := range []int{0, 100} {
		j := job{Dir: dir, Ports: sim.Ports, Parallel: parallel, Profile: *cpu, Heap: *heap}
		*cpu, *heap = "", ""
		title := fmt.Sprintf("parallel %d: ", parallel)
		if parallel == 0 {
			title = "all at once: "
		}
		version++
		before, err := sim.sendRequest(request{})
		if err != nil {
			return err
		}
		j.Systems = assignSystems(*nodes, systems, fmt.Sprint(version))
		healthy, err := applyInClient(ctx, j)
		if err != nil {
			return err
		}
		after, err := sim.sendRequest(request{})
		if err != nil {
			return err
		}
		t.addOutcome(title+"switched", healthy.Outcomes[state.Switched], *nodes, healthy)
		t.addRow(title+"wall", formatSeconds(healthy.Wall))
		most, all := 0, 0
		for i := range after.Handshakes {
			n := after.Handshakes[i] - before.Handshakes[i]
			most, all = max(most, n), all+n
		}
		t.addBudget(title+"handshakes per node, most", fmt.Sprint(most), "3: one, and two to confirm", most <= 3)
		t.addRow(title+"commands per node", fmt.Sprintf("%.1f", float64(after.Commands-before.Commands)/float64(*nodes)))
		t.addCost(title, healthy, *nodes)

		version++
		stuck := *nodes / 2
		if _, err := sim.sendRequest(request{Freeze: stuck}); err != nil {
			return err
		}
		j.Systems, j.Profile = assignSystems(*nodes, systems, fmt.Sprint(version)), ""
		j.Heap = ""
		one, err := applyInClient(ctx, j)
		if err != nil {
			return err
		}
		if _, err := sim.sendRequest(request{Thaw: stuck}); err != nil {
			return err
		}
		name := nodeName(stuck - 1)
		with, without := one.lastResultExcept(name), healthy.lastResultExcept(name)
		title += "one stuck: "
		t.addOutcome(title+"switched", one.Outcomes[state.Switched], *nodes-1, one)
		t.addRow(title+name+" fails after", formatSeconds(one.Done[name]))
		ratio := with.Seconds() / without.Seconds()
		t.addBudget(title+"the others", fmt.Sprintf("%s, %.2f × without", formatSeconds(with), ratio), "under 1.5 ×", ratio < 1.5)
		t.addBudget(title+"peak memory", formatMegabytes(one.Peak), "under 300 MB", one.Peak < memoryBudget)
	}
	return t.print()
}

// addOutcome adds a row with got, the number of nodes with the expected outcome. If got is not want, it also
// adds rows for up to three failed nodes.
func (t *table) addOutcome(what string, got, want int, s sample) {
	t.addBudget(what, fmt.Sprint(got), fmt.Sprint(want), got == want)
	if got != want {
		for _, name := range slices.Sorted(maps.Keys(s.Failed))[:min(3, len(s.Failed))] {
			text := s.Failed[name]
			t.addRow("  "+name, text[max(0, len(text)-60):])
		}
	}
}

func (t *table) addCost(title string, s sample, nodes int) {
	t.addBudget(title+"peak memory", formatMegabytes(s.Peak), "under 300 MB", s.Peak < memoryBudget)
	t.addRow(title+"goroutines", fmt.Sprint(s.Goroutines))
	t.addRow(title+"CPU per node", formatPerNode(s.CPU, nodes))
	t.addRow(title+"CPU of ssh -G per node", formatPerNode(s.Children, nodes))
	t.addRow(title+"processes of Nix", fmt.Sprint(s.Nix))
}
