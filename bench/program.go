package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/program"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/durable"
)

// maxProgram is the maximum size in bytes of the program of a workload.
const maxProgram = 256 << 20

// readProgram returns the content of the program of a workload. It returns an error if the program cannot be executed.
func readProgram(name string, w WorkloadOptions) ([]byte, error) {
	file := w.Program[0]
	info, err := os.Stat(file)
	switch {
	case !filepath.IsAbs(file):
		err = fmt.Errorf("%q is no path; the first element is a file of the hive, such as ./play.sh, or a file in a store path", file)
	case err == nil && info.Mode()&0o111 == 0:
		err = fmt.Errorf("%s is not executable; run: chmod +x %s", file, shellescape.Quote(file))
	}
	var data []byte
	if err == nil {
		data, err = durable.Read(file, maxProgram)
	}
	if err != nil {
		return nil, fmt.Errorf("workloads.%s.program: %w", name, err)
	}
	return data, nil
}

// DescribeWorkload returns the identity of a workload with these jobs. For a program that Nix builds, the hash contains the path instead of
// the content. It returns an error if the program of the workload cannot be executed.
func DescribeWorkload(name string, w WorkloadOptions, jobs []workload.Job) (out Workload, err error) {
	out = Workload{Hash: workload.Hash(jobs), Jobs: len(jobs), Tasks: workload.Tasks(jobs)}
	if len(w.Program) == 0 {
		return out, nil
	}
	content := []byte(w.Program[0])
	if len(w.ProgramInputs) == 0 {
		content, err = readProgram(name, w)
	}
	out.Program = workload.HashOf([]byte(workload.HashOf(content) + "\x00" + strings.Join(w.Program[1:], "\x00")))
	return out, err
}

// keepProgram copies the program of the workload with this name into the folder of a sweep.
func keepProgram(folder, name string, w WorkloadOptions) error {
	data, err := readProgram(name, w)
	if err != nil {
		return err
	}
	file := programFile(folder, name)
	if err := durable.Write(file, data); err != nil {
		return err
	}
	return os.Chmod(file, 0o700)
}

func programFile(folder, name string) string {
	return filepath.Join(folder, "workloads", name+".program")
}

// privateFolder is the name of a folder in the folder of an attempt. Archives do not contain it: the program of the workload runs in it,
// and may write credentials there.
const privateFolder = ".nixbench"

// newProgram returns a player that runs the program of the workload. scheduler is the scheduler's own player, and folder the folder of the
// attempt.
func (a *attempt) newProgram(scheduler player.Player, folder string, running *Running) (player.Player, error) {
	name := a.trial.Workload()
	w := a.Store.Sweep.Benchmark.Workloads[name]
	private, err := filepath.Abs(filepath.Join(folder, privateFolder))
	if err == nil {
		err = os.MkdirAll(filepath.Join(private, "bin"), 0o700)
	}
	if err == nil { // the command nixbench for this cluster
		err = os.WriteFile(filepath.Join(private, "bin", "nixbench"), []byte("#!/bin/sh\nexec "+shellescape.QuoteCommand(running.Command)+" \"$@\"\n"), 0o700)
	}
	if err != nil {
		return nil, err
	}
	attemptFolder := filepath.Dir(private)
	file, err := filepath.Abs(programFile(a.Store.Folder, name))
	if err != nil {
		return nil, err
	}
	return program.New(scheduler, program.Options{
		Name: "workloads." + name + ".program (" + w.Program[0] + ")", Argv: append([]string{file}, w.Program[1:]...), Folder: private,
		Log: filepath.Join(attemptFolder, "program.log"),
		Env: append(os.Environ(), "NIXBENCH_TRIAL="+attemptFolder, "NIXBENCH_CELL="+a.trial.String(),
			"NIXBENCH_SOURCE="+filepath.Join(filepath.Dir(filepath.Dir(file)), "source", sourceFolder(a.Store.Sweep)),
			"PATH="+filepath.Join(private, "bin")+string(os.PathListSeparator)+os.Getenv("PATH")),
	}), nil
}

// sourceFolder returns the folder of the hive in the sweep's copy of the source.
func sourceFolder(s Sweep) string {
	if s.Flake {
		return s.Source
	}
	return filepath.Dir(s.Source)
}

// ObservedJobs returns the jobs that occur in events. It is for workloads whose program decides which jobs it submits. The intended time of
// a job is the time at which the program submitted the job, after start.
func ObservedJobs(events []player.Event, start time.Time) []workload.Job {
	index := map[string]int{}
	var jobs []workload.Job
	for _, e := range events {
		i, ok := index[e.Job]
		if !ok {
			i = len(jobs)
			index[e.Job] = i
			jobs = append(jobs, workload.Job{ID: e.Job, Nodes: 1, Tasks: 1, CPUs: 1, Submit: e.Time.Sub(start).Seconds()})
		}
		jobs[i].Tasks = max(jobs[i].Tasks, e.Task)
		jobs[i].Submit = min(jobs[i].Submit, e.Time.Sub(start).Seconds())
	}
	return jobs
}
