package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/internal/bench/memgroup"
	"github.com/nixbench/nixbench/nixeval"
)

// evalJob describes one evaluation of a hive, which a process in a memory cgroup executes.
type evalJob struct {
	Dir              string // folder for the hive
	Nixpkgs, Modules string // folders
	Nodes            int
	ByName           bool   // each worker is a node of its own, instead of a role with a count
	Cross            bool   // each named node reads an option of all nodes
	Salt             string // text in each system, so that no system exists in the store
	Group            memgroup.Group
}

// evalSample is the measured result of an evalJob.
type evalSample struct {
	Survey, Instantiate time.Duration
	CPU                 time.Duration // of all processes
	Units               int           // number of evaluated systems
	Summary             string        // such as "2 units in 1 process"
}

// evalLimit is the maximum duration of one evaluation.
const evalLimit = 30 * time.Minute

func evaluateInProcess(ctx context.Context, job evalJob) (evalSample, error) {
	ctx, cancel := context.WithTimeout(ctx, evalLimit)
	defer cancel()
	cmd, to, from, err := startProcess(ctx, "evaluate")
	if err != nil {
		return evalSample{}, err
	}
	var s evalSample
	err = to.Encode(job)
	if err == nil {
		err = from.Decode(&s)
	}
	return s, errors.Join(err, cmd.Wait())
}

// runEval is the main function of the process that evaluates. It reads a job from stdin, executes it in the job's
// cgroup, and writes the sample to stdout.
func runEval(ctx context.Context) error {
	var job evalJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return err
	}
	if err := job.Group.Enter(); err != nil {
		return err
	}
	s, err := job.evaluate(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

func (j evalJob) evaluate(ctx context.Context) (s evalSample, err error) {
	source, err := j.writeHive()
	if err != nil {
		return s, err
	}
	e := nixeval.New(nixeval.Options{Source: source, Send: func(e event.Event) {
		if e.Kind == event.PhaseEnd && e.Phase == event.Evaluate {
			s.Summary = e.Text
		}
	}})
	var hive *nixeval.Hive
	s.Survey, err = measureTime(func() error {
		hive, err = e.Survey(ctx)
		return err
	})
	if err != nil {
		return s, err
	}
	if len(hive.Nodes) != j.Nodes {
		return s, fmt.Errorf("the hive has %d nodes instead of %d", len(hive.Nodes), j.Nodes)
	}
	var units []string
	for _, u := range hive.Units {
		if err := hive.Broken[u.Name]; err != nil {
			return s, err
		}
		units = append(units, u.Name)
	}
	s.Units = len(units)
	s.Instantiate, err = measureTime(func() error {
		_, err := e.Instantiate(ctx, units)
		return err
	})
	s.CPU = cpuTime(syscall.RUSAGE_SELF) + cpuTime(syscall.RUSAGE_CHILDREN)
	var failed *nixeval.EvalError
	if errors.As(err, &failed) {
		for unit, reason := range failed.Units {
			err = fmt.Errorf("%w\n%s: %w", err, unit, reason)
		}
	}
	return s, err
}

//go:embed eval-hive.nix
var evalHive []byte

// writeHive writes the hive of the job, and the file that it reads. It returns the hive's source.
func (j evalJob) writeHive() (nixeval.Source, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nixeval.Source{}, err
	}
	file := filepath.Join(j.Dir, "hive.nix")
	err = errors.Join(os.WriteFile(file, evalHive, 0o600), os.WriteFile(filepath.Join(j.Dir, "job.json"), text, 0o600))
	return nixeval.Source{File: file, Dir: j.Dir}, err
}
