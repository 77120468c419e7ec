package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Store is the folder of a sweep. docs/bench.md lists its files. sweep.json is written last, so a sweep without it does not exist, and an
// attempt of a trial without result.json was interrupted, and does not count.
type Store struct {
	Folder string
	Sweep  Sweep
}

var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-`)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)

// maxSweepFile is the maximum size in bytes of a file of a sweep. A larger file is not read.
const maxSweepFile = 1 << 30

const formatVersion = 1

// Create writes a frozen sweep into its folder, which already contains the copy of the hive.
func Create(folder string, s Sweep, jobs map[string][]workload.Job) (*Store, error) {
	s.Version = formatVersion
	if err := os.MkdirAll(filepath.Join(folder, "workloads"), 0o700); err != nil {
		return nil, err
	}
	s.Workloads = map[string]Workload{}
	workloads := s.Benchmark.Workloads
	s.Benchmark = withoutJobs(s.Benchmark)
	for name, list := range jobs {
		if err := durable.Write(workloadFile(folder, name), workload.Encode(list)); err != nil {
			return nil, err
		}
		w, err := DescribeWorkload(name, workloads[name], list)
		if err == nil && w.Program != "" {
			err = keepProgram(folder, name, workloads[name])
		}
		if err != nil {
			return nil, err
		}
		s.Workloads[name] = w
	}
	return Repeat(folder, s)
}

// Repeat writes a frozen sweep into its folder, which already contains the copy of the hive and the workloads.
func Repeat(folder string, s Sweep) (*Store, error) {
	return &Store{folder, s}, writeJSON(filepath.Join(folder, "sweep.json"), s)
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return durable.Write(file, append(data, '\n'))
}

// Extend adds trials to a complete sweep, so that it has this number of blocks. It records that somebody may have looked at the results
// before: to extend a sweep until the results please would make wrong answers more frequent.
func (st *Store) Extend(blocks int) error {
	s := st.Sweep
	if most := max(s.Benchmark.MaxBlocks, s.Benchmark.Repetitions); blocks > most || s.Benchmark.Order == Cheap {
		return fmt.Errorf("the sweep %s can have at most %d blocks; declare maxBlocks before a sweep, and order = \"blocks\"", s.ID, most)
	}
	s.Looks = append(slices.Clone(s.Looks), s.Benchmark.Repetitions)
	s.Benchmark.Repetitions = blocks
	_, s.Trials = Plan(s.Benchmark) // the trials of earlier blocks stay the same
	extended, err := Repeat(st.Folder, s)
	if err == nil {
		*st = *extended
	}
	return err
}

func Open(folder string) (*Store, error) {
	data, err := durable.Read(filepath.Join(folder, "sweep.json"), maxSweepFile)
	if err != nil {
		return nil, err
	}
	st := &Store{Folder: folder}
	if err := json.Unmarshal(data, &st.Sweep); err != nil {
		return nil, fmt.Errorf("%s: sweep.json: %w", folder, err)
	}
	if st.Sweep.Version != formatVersion {
		return nil, fmt.Errorf("%s: sweep.json has the version %d, and this nixbench reads version %d", folder, st.Sweep.Version, formatVersion)
	}
	if err := st.Sweep.validate(); err != nil {
		return nil, fmt.Errorf("%s: sweep.json: %w", folder, err)
	}
	return st, nil
}

// validate returns an error if sweep.json has values that nixbench cannot have written.
func (s Sweep) validate() error {
	if len(s.Configurations) == 0 || !filepath.IsLocal(s.Source) {
		return errors.New("it has no configurations, or its source is outside of its folder")
	}
	for _, t := range s.Trials {
		if t.Configuration < 0 || t.Configuration >= len(s.Configurations) || !nameForm.MatchString(t.Workload()) {
			return fmt.Errorf("trial %d has no configuration or no workload", t.Number)
		}
	}
	return nil
}

// List opens all sweeps in a folder, the oldest first. It skips folders without a complete sweep.
func List(folder string) ([]*Store, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []*Store
	for _, e := range entries { // oldest first: the names of sweeps begin with their time
		st, err := Open(filepath.Join(folder, e.Name()))
		if errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// RemoveIncomplete removes the folders of sweeps that were interrupted before everything was frozen. Such sweeps have created no
// machines.
func RemoveIncomplete(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if idForm.MatchString(e.Name()) && !durable.Exists(filepath.Join(path, "sweep.json")) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

func workloadFile(folder, name string) string {
	return filepath.Join(folder, "workloads", name+".jsonl")
}

// ReadWorkload reads the jobs of a workload. It returns no jobs if the program of the workload decides which jobs it submits.
func (st *Store) ReadWorkload(name string) ([]workload.Job, error) {
	if w := st.Sweep.Workloads[name]; w.Program != "" && w.Jobs == 0 {
		return nil, nil
	}
	f, _, err := durable.Open(workloadFile(st.Folder, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	jobs, err := workload.Read(f)
	if err == nil && workload.Hash(jobs) != st.Sweep.Workloads[name].Hash {
		err = errors.New("the file was changed: its hash is not that in sweep.json")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", workloadFile(st.Folder, name), err)
	}
	return jobs, nil
}

func (st *Store) ReadProgress() (Progress, error) {
	all, err := st.AllAttempts()
	return st.Sweep.ProgressOf(all), err
}

// ProgressOf returns how much of the sweep is done by these attempts, the result of [Store.AllAttempts].
func (s Sweep) ProgressOf(attempts map[int][]Attempt) Progress {
	p := Progress{Trials: len(s.Trials), States: map[string]int{}}
	for _, all := range attempts {
		for _, a := range all {
			p.States[a.State]++
			p.Played += a.Phases["play"]
			p.Elapsed += a.Ended.Sub(a.Began).Seconds()
		}
		if s.IsDone(all) {
			p.Done++
		}
	}
	return p
}

// IsDone reports whether a trial with these attempts has a result that counts, or no attempts left.
func (s Sweep) IsDone(all []Attempt) bool {
	return slices.ContainsFunc(all, Attempt.Counts) || len(all) > s.Benchmark.Retries
}

// Find returns the sweep whose id begins with ref. If ref is "last", it returns the last sweep.
func Find(all []*Store, ref string) (*Store, error) {
	found := stats.Keep(all, func(st *Store) bool { return ref == "last" || strings.HasPrefix(st.Sweep.ID, ref) })
	beginnings := stats.Map(all, func(st *Store) string { return st.Sweep.ID[:min(len(ref), len(st.Sweep.ID))] })
	switch {
	case len(all) == 0:
		return nil, errors.New("there are no sweeps yet; nixbench bench run executes a benchmark")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no sweep %s; nixbench bench list shows the sweeps%s", ref, failure.Suggest(ref, beginnings))
	case ref == "last" || len(found) == 1:
		return found[len(found)-1], nil
	}
	return nil, fmt.Errorf("%d sweeps begin with %s: %s and %s", len(found), ref, found[0].Sweep.ID, found[1].Sweep.ID)
}
