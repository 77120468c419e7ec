package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/bench"
	"github.com/nixbench/nixbench/deploy/bench/noise"
	"github.com/nixbench/nixbench/deploy/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
)

// newPlayer returns the player for a cluster, with its settings in a workload. client is the node on which the player's commands run; if it is
// empty, they run on the node of the scheduler.
type newPlayer func(c engine.Cluster, client string, settings json.RawMessage) (player.Player, error)

// newObserver returns an observer of this machine.
func newObserver(store *bench.Store) bench.Observer {
	q := store.Sweep.Benchmark.Quiet
	limits := noise.Thresholds{Steal: q.Steal, ForeignCPU: q.ForeignCPU, PSICPU: q.PSICPU, Canary: q.Canary}
	return func(ctx context.Context, domains []string) func() bench.Observation {
		m, err := noise.Start(ctx, noise.Options{Dir: store.Folder, Source: noise.Source{Root: "/", OwnParents: findMachineProcesses("/proc", domains)}})
		if err != nil {
			return func() bench.Observation {
				return bench.Observation{State: bench.Suspect, Reasons: []string{"this machine was not observed: " + err.Error()}}
			}
		}
		return func() bench.Observation {
			report := m.Stop()
			verdict := limits.Judge(report)
			data, _ := json.Marshal(report) // it has only numbers and texts
			return bench.Observation{State: string(verdict.State), Reasons: verdict.Reasons, Report: data}
		}
	}
}

// findMachineProcesses returns the processes of libvirt domains. Each is the parent of all processes of its machine.
func findMachineProcesses(proc string, domains []string) []int {
	var out []int
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		argv := strings.Split(string(data), "\x00")
		if name := filepath.Base(argv[0]); name != "libvirt_lxc" && !strings.HasPrefix(name, "qemu-") && name != "qemu-kvm" {
			continue
		}
		for _, d := range domains {
			if hasDomain(argv, d) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				out = append(out, pid)
			}
		}
	}
	return out
}

// hasDomain reports whether the arguments of libvirt_lxc or QEMU name a domain: --name DOMAIN, or -name guest=DOMAIN,….
func hasDomain(argv []string, domain string) bool {
	for i, a := range argv[:max(0, len(argv)-1)] {
		if value := argv[i+1]; (a == "--name" || a == "-name") && (value == domain || strings.HasPrefix(value+",", "guest="+domain+",")) {
			return true
		}
	}
	return false
}
