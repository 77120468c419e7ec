package sweeps

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/deploy/durable"
)

// loadReference reads the measurement of this computer without load, with which the canaries of all trials of a sweep are compared, so that
// also a slow change of this computer from trial to trial is seen. If the sweep has none yet, loadReference measures and stores it.
func loadReference(ctx context.Context, store *bench.Store) (c noise.Canary, err error) {
	file := filepath.Join(store.Folder, "reference.json")
	data, err := durable.Read(file, durable.RecordSize)
	if err == nil {
		return c, json.Unmarshal(data, &c)
	}
	if c, err = noise.MeasureReference(ctx); err != nil {
		return c, fmt.Errorf("measure this computer before the first trial: %w", err)
	}
	if data, err = json.Marshal(c); err != nil {
		return c, err
	}
	return c, durable.Write(file, append(data, '\n'))
}

// newObserver returns an observer of this computer. The observer compares the noise of each trial with the reference of the sweep.
func newObserver(store *bench.Store, reference noise.Canary) bench.Observer {
	return func(ctx context.Context, t bench.Trial, r *bench.Running) func() (noise.Verdict, *noise.Report) {
		m, err := noise.Start(ctx, noise.Options{Source: noise.Source{Machines: findMachineProcesses("/proc", r.Processes)}, Reference: reference, Interval: time.Second, States: r.States})
		if err != nil {
			return func() (noise.Verdict, *noise.Report) {
				return noise.Verdict{State: noise.Suspect, Reasons: []string{"this machine was not observed: " + err.Error()}}, nil
			}
		}
		return func() (noise.Verdict, *noise.Report) {
			report := m.Stop()
			return store.Sweep.Benchmark.Quiet.Judge(report), &report
		}
	}
}

// findMachineProcesses returns, by node, the id of the process that is the node's machine: QEMU or libvirt_lxc. All other processes of the
// machine descend from it. machines has what identifies the process of each node, see [bench.Running]. The name of a machine would not
// suffice, because machines on other hypervisors of this computer can have the same name.
func findMachineProcesses(proc string, machines map[string]string) map[string]int {
	out := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		argv, folder := strings.Split(string(data), "\x00"), filepath.Dir(file)
		for node, m := range machines {
			switch program := filepath.Base(argv[0]); {
			case m == "":
			case program == "libvirt_lxc" && innerID(folder) == m, strings.HasPrefix(program, "qemu-") && slices.Contains(argv, m):
				out[node], _ = strconv.Atoi(filepath.Base(folder))
			}
		}
	}
	return out
}

// innerID returns the id of a process in its own PID namespace, which is that of the hypervisor, from the process's folder in /proc.
func innerID(folder string) string {
	data, _ := os.ReadFile(filepath.Join(folder, "status")) // an error means that the process has ended
	ids, _ := noise.LineOf(data, "NSpid:")
	return ids[strings.LastIndexAny(ids, " \t")+1:]
}
