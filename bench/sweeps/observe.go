package sweeps

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
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
