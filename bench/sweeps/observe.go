package sweeps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/deploy/durable"
)

// noiseReference contains the measurements of this computer without load, with which the canaries of each trial are compared. They are
// made only once per sweep, so that also a slow change of this computer from trial to trial is seen.
type noiseReference struct {
	Canary     noise.Canary          `json:"canary"`     // of this computer before the first trial
	RoundTrips map[int]time.Duration `json:"roundTrips"` // the round trip time to a node, measured before the first trial of each configuration
}

// referenceFile returns the path of the sweep's noise reference. Archives do not contain the file, because a sweep may be
// repeated on another computer.
func referenceFile(store *bench.Store) string { return filepath.Join(store.Folder, "reference.json") }

// loadReference reads the noise reference of a sweep. If the sweep has none yet, loadReference measures and stores it.
func loadReference(ctx context.Context, store *bench.Store) (*noiseReference, error) {
	r := &noiseReference{RoundTrips: map[int]time.Duration{}}
	data, err := durable.Read(referenceFile(store), durable.RecordSize)
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err == nil {
		return r, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", referenceFile(store), err)
	}
	if r.Canary, err = noise.MeasureReference(ctx, store.Folder); err != nil {
		return nil, fmt.Errorf("measure this computer before the first trial: %w", err)
	}
	return r, r.save(store)
}

func (r *noiseReference) save(store *bench.Store) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Write(referenceFile(store), append(data, '\n'))
}

// newObserver returns an observer of this computer. The observer compares the noise of each trial with the reference of the sweep.
func newObserver(store *bench.Store, reference *noiseReference) bench.Observer {
	return func(ctx context.Context, t bench.Trial, r *bench.Running) func() (noise.Verdict, *noise.Report) {
		whole := reference.Canary
		whole.RoundTrip = reference.RoundTrips[t.Configuration]
		m, err := noise.Start(ctx, noise.Options{
			Dir: store.Folder, Source: noise.Source{Machines: findMachineProcesses("/proc", r.Domains)}, Reference: whole, RoundTrip: r.RoundTrip, States: r.States,
		})
		if err != nil {
			return func() (noise.Verdict, *noise.Report) {
				return noise.Verdict{State: noise.Suspect, Reasons: []string{"this machine was not observed: " + err.Error()}}, nil
			}
		}
		return func() (noise.Verdict, *noise.Report) {
			report := m.Stop()
			if report.Before != nil && whole.RoundTrip == 0 && report.Before.RoundTrip > 0 {
				reference.RoundTrips[t.Configuration] = report.Before.RoundTrip
				if err := reference.save(store); err != nil {
					report.Notes = append(report.Notes, "the reference of the sweep: "+err.Error())
				}
			}
			return store.Sweep.Benchmark.Quiet.Judge(report), &report
		}
	}
}
