package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/durable"
)

// Store is the folder of a sweep:
//
//	sweep.json              everything that is frozen; it is written last, so a sweep without it does not exist
//	source/                 a copy of the hive
//	facts/                  addresses and hashes of keys, from which the systems are built
//	.nixbench/reservation/  the state of the cluster before its first machine, with its keys
//	gcroots/                links that keep the systems and their derivations in the Nix store
//	reference.json          the time of a fixed piece of work on the idle machine, with which the noise of trials is compared
//	workloads/NAME.jsonl    the jobs
//	workloads/NAME.program  the program that plays the workload, if it has one
//	trials/N/A/             attempt A of trial N
//	trials/N/A/apply.log    what the deployment printed
//	trials/N/A/events.jsonl what happened to the jobs
//	trials/N/A/program.log  what the program of the workload printed to stderr
//	trials/N/A/result.json  the result; an attempt without it was interrupted, and does not count
type Store struct {
	Folder string
	Sweep  Sweep
}

var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-`)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)

// maxSweepFile is the maximum size in bytes of a file of a sweep. A larger file is not read.
const maxSweepFile = 1 << 30

const formatVersion = 1

// Attempt is the result of an attempt of a trial.
type Attempt struct {
	Trial   int       `json:"trial"`
	Number  int       `json:"attempt"` // from 1
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	State   string    `json:"state"` // valid, suspect, invalid, or failed
	Reasons []string  `json:"reasons,omitempty"`
	// Phases has the seconds that the phases of the attempt took: deploy, clean, pause, prepare, play.
	Phases  map[string]float64      `json:"phases"`
	Systems map[string]string       `json:"systems,omitempty"` // by node, the store path of the system that runs
	Limits  []player.Limit          `json:"limits,omitempty"`
	Limited []string                `json:"limited,omitempty"` // names of the scheduler's limits that the measured rates almost reached
	Usage   map[string]player.Usage `json:"usage,omitempty"`   // by part of the scheduler: what it used during the trial
	// Requests has the requests that programs of the scheduler counted during the trial. Result.Metrics has the sum of these requests.
	Requests []player.Request `json:"requests,omitempty"`
	Place    *player.Place    `json:"place,omitempty"` // where commands ran
	Clock    *Clock           `json:"clock,omitempty"` // absent if the player converts no times
	Noise    *noise.Report    `json:"noise,omitempty"`
	Result   trial.Result     `json:"result"`
}

// Clock is the difference between the clock of the scheduler's node and the clock of this computer, in seconds.
type Clock struct {
	Offset float64 `json:"offset"` // clock of the node minus clock of this computer, before the workload
	Drift  float64 `json:"drift"`  // the change of the offset during the workload
	Error  float64 `json:"error"`  // the maximum error of the offset: the larger of the errors before and after the workload
}

// States of attempts. Results with the states Valid and Suspect count.
const (
	Valid   = noise.Valid
	Suspect = noise.Suspect
	Invalid = noise.Invalid
	Failed  = "failed"
)

// Counts reports whether the result of the attempt is used.
func (a Attempt) Counts() bool { return a.State == Valid || a.State == Suspect }

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
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, err
	}
	return &Store{folder, s}, durable.Write(filepath.Join(folder, "sweep.json"), append(data, '\n'))
}

// Open opens the folder of a sweep.
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
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
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if _, err := os.Stat(filepath.Join(path, "sweep.json")); idForm.MatchString(e.Name()) && errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func workloadFile(folder, name string) string {
	return filepath.Join(folder, "workloads", name+".jsonl")
}

// Jobs reads the jobs of a workload. It returns no jobs if the program of the workload decides which jobs it submits.
func (st *Store) Jobs(name string) ([]workload.Job, error) {
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

// Attempts returns the attempts of a trial that have a result, in their order.
func (st *Store) Attempts(number int) ([]Attempt, error) {
	var out []Attempt
	for n := 1; ; n++ {
		folder := st.attemptFolder(number, n)
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		data, err := durable.Read(filepath.Join(folder, "result.json"), maxSweepFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the attempt was interrupted
		}
		var a Attempt
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		out = append(out, a)
	}
}

// AllAttempts returns the attempts of all trials that have a result, by the number of the trial.
func (st *Store) AllAttempts() (map[int][]Attempt, error) {
	out := map[int][]Attempt{}
	for _, t := range st.Sweep.Trials {
		var err error
		if out[t.Number], err = st.Attempts(t.Number); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (st *Store) attemptFolder(trial, attempt int) string {
	return filepath.Join(st.Folder, "trials", fmt.Sprint(trial), fmt.Sprint(attempt))
}

// begin creates the folder of the next attempt of a trial, and returns the number of the attempt and the folder.
func (st *Store) begin(number int) (attempt int, folder string, err error) {
	for attempt = 1; ; attempt++ {
		folder = st.attemptFolder(number, attempt)
		if err = os.MkdirAll(filepath.Dir(folder), 0o700); err == nil {
			err = os.Mkdir(folder, 0o700)
		}
		if !errors.Is(err, fs.ErrExist) {
			return attempt, folder, err
		}
	}
}

// finish writes the events of an attempt, and then its result.
func (st *Store) finish(a Attempt, events []player.Event) error {
	folder := st.attemptFolder(a.Trial, a.Number)
	var b bytes.Buffer
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	if err := durable.Write(filepath.Join(folder, "events.jsonl"), b.Bytes()); err != nil {
		return err
	}
	data, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(folder, "result.json"), append(data, '\n'))
}

// Events reads the events of an attempt.
func (st *Store) Events(a Attempt) ([]player.Event, error) {
	file := filepath.Join(st.attemptFolder(a.Trial, a.Number), "events.jsonl")
	f, _, err := durable.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []player.Event
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e player.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, e)
	}
	return out, lines.Err()
}

// Played reads the jobs of an attempt and their events. If the program of a workload decides its jobs, the jobs are found from the events.
func (st *Store) Played(t Trial, a Attempt) ([]workload.Job, []player.Event, error) {
	jobs, err := st.Jobs(t.Workload())
	if err != nil {
		return nil, nil, err
	}
	events, err := st.Events(a)
	if err == nil && len(jobs) == 0 {
		jobs = ObservedJobs(events, a.Result.Began)
	}
	return jobs, events, err
}

// Progress describes how much of a sweep is done.
type Progress struct {
	Trials  int            `json:"trials"`
	Done    int            `json:"done"` // number of trials that have a result, or no attempts left
	States  map[string]int `json:"states"`
	Played  float64        `json:"played"`  // seconds that the workloads ran, of all attempts with a result
	Elapsed float64        `json:"elapsed"` // seconds of all attempts with a result: without the freeze, and without attempts that were interrupted
}

// Progress reads how much of the sweep is done.
func (st *Store) Progress() (Progress, error) {
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
		if s.isDone(all) {
			p.Done++
		}
	}
	return p
}

// isDone reports whether a trial with these attempts has a result that counts, or no attempts left.
func (s Sweep) isDone(all []Attempt) bool {
	return slices.ContainsFunc(all, Attempt.Counts) || len(all) > s.Benchmark.Retries
}

// Find returns the sweep whose id begins with ref. If ref is "last", it returns the last sweep.
func Find(all []*Store, ref string) (*Store, error) {
	var found []*Store
	for _, st := range all {
		if ref == "last" || strings.HasPrefix(st.Sweep.ID, ref) {
			found = append(found, st)
		}
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("there are no sweeps yet; nixbench bench run executes a benchmark")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no sweep %s; nixbench bench list shows the sweeps", ref)
	case ref == "last" || len(found) == 1:
		return found[len(found)-1], nil
	}
	return nil, fmt.Errorf("%d sweeps begin with %s: %s and %s", len(found), ref, found[0].Sweep.ID, found[1].Sweep.ID)
}
