package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nixbench/nixbench/deploy/state"
)

// benchNoop measures an apply to nodes that already run their desired systems.
func benchNoop(ctx context.Context, dir string, args []string) error {
	set := flag.NewFlagSet("noop", flag.ContinueOnError)
	cpu := set.String("cpuprofile", "", "write a profile of the last apply to this `file`")
	if err := set.Parse(args); err != nil {
		return err
	}
	fmt.Printf("every node runs its system already; evaluation and build take no time\n\n")
	t := &table{}
	for _, c := range []struct {
		nodes, parallel int
		budget          time.Duration
	}{{10, 10, time.Second}, {1000, 10, 0}, {1000, 0, 0}} {
		title := fmt.Sprintf("%d nodes, parallel %d: ", c.nodes, c.parallel)
		j := job{Dir: filepath.Join(dir, fmt.Sprintf("%d-%d", c.nodes, c.parallel)), Systems: assignSystems(c.nodes, systems, "1"), Parallel: c.parallel}
		if c.nodes > 10 && c.parallel == 0 {
			j.Profile = *cpu
		}
		if err := measureNoop(ctx, t, title, j, c.budget); err != nil {
			return err
		}
	}
	return t.print()
}

func measureNoop(ctx context.Context, t *table, title string, j job, budget time.Duration) error {
	nodes := len(j.Systems)
	if err := os.Mkdir(j.Dir, 0o700); err != nil {
		return err
	}
	sim, err := startNodes(ctx, j.Systems, 0)
	if err != nil {
		return err
	}
	defer sim.stop()
	j.Ports = sim.Ports
	if err := writeSSHConfig(j.Dir, sim.Known); err != nil {
		return err
	}
	if err := writeDeployedState(ctx, j); err != nil {
		return err
	}
	s, err := applyInClient(ctx, j)
	if err != nil {
		return err
	}
	a, err := sim.sendRequest(request{})
	if err != nil {
		return err
	}
	t.addOutcome(title+"unchanged", s.Outcomes[state.Unchanged], nodes, s)
	if budget > 0 {
		t.addBudget(title+"wall", formatSeconds(s.Wall), "under "+budget.String(), s.Wall < budget)
	} else {
		t.addRow(title+"wall", formatSeconds(s.Wall))
	}
	most := 0
	for _, n := range a.Handshakes {
		most = max(most, n)
	}
	t.addBudget(title+"handshakes per node, most", fmt.Sprint(most), "1", most <= 1)
	t.addBudget(title+"commands per node", fmt.Sprintf("%.1f", float64(a.Commands)/float64(nodes)), "1: what runs there", a.Commands <= nodes)
	t.addCost(title, s, nodes)
	return nil
}

// writeDeployedState writes a state in which all systems of the job are already deployed, as after an apply.
func writeDeployedState(ctx context.Context, j job) error {
	dir := state.Dir(filepath.Join(j.Dir, ".nixbench", "bench"))
	if err := dir.Create(); err != nil {
		return err
	}
	lock, err := dir.Lock(ctx, state.Self("apply"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err != nil {
		return err
	}
	return store.Update(func(s *state.State) error {
		for i, path := range j.Systems {
			s.Confirm(nodeName(i), state.Deployment{Path: path, Generation: 1, Run: "before", Time: time.Now()})
		}
		return nil
	})
}
