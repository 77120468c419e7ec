package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/durable"
)

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
	Image    string           `json:"image,omitempty"` // digest of the image of the jobs
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

// AllAttempts returns the attempts of all trials that have a result, by the number of the trial. If the jobs of one attempt have no stamps,
// the metrics that need stamps are absent in all attempts.
func (st *Store) AllAttempts() (map[int][]Attempt, error) {
	out, without := map[int][]Attempt{}, false
	for _, t := range st.Sweep.Trials {
		var err error
		if out[t.Number], err = st.Attempts(t.Number); err != nil {
			return nil, err
		}
		without = without || slices.ContainsFunc(out[t.Number], Attempt.withoutStamps)
	}
	for _, all := range out {
		for _, a := range all {
			maps.DeleteFunc(a.Result.Metrics, func(name string, _ float64) bool { return without && trial.IsStamped(name) })
		}
	}
	return out, nil
}

func (a Attempt) withoutStamps() bool {
	return a.Result.Unstamped > 0 && a.Result.Unstamped == a.Result.Finished
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
	lines := json.NewEncoder(&b)
	for _, e := range events {
		if err := lines.Encode(e); err != nil {
			return err
		}
	}
	if err := durable.Write(filepath.Join(folder, "events.jsonl"), b.Bytes()); err != nil {
		return err
	}
	return writeJSON(filepath.Join(folder, "result.json"), a)
}

// ReadTrialJobs reads the jobs of a trial. Random times of submission are those of the trial's block.
func (st *Store) ReadTrialJobs(t Trial) ([]workload.Job, error) {
	jobs, err := st.ReadWorkload(t.Workload())
	if err != nil {
		return nil, err
	}
	return drawAgain(jobs, st.Sweep.Benchmark.Workloads[t.Workload()].Arrival, st.Sweep.Benchmark.Seed, t.Block)
}

// Progress describes how much of a sweep is done.
type Progress struct {
	Trials  int            `json:"trials"`
	Done    int            `json:"done"` // number of trials that have a result, or no attempts left
	States  map[string]int `json:"states"`
	Played  float64        `json:"played"`  // seconds that the workloads ran, of all attempts with a result
	Elapsed float64        `json:"elapsed"` // seconds of all attempts with a result: without the freeze, and without attempts that were interrupted
}
