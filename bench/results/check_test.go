package results

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
)

// checked has two cells on two configurations, and a workload of 500 s.
var checked = bench.Benchmark{
	Cells:       []map[string]string{{"roles.node.count": "1", "workload": "w"}, {"roles.node.count": "2", "workload": "w"}},
	Workloads:   map[string]bench.WorkloadOptions{"w": {TimeLimit: 1000}},
	Repetitions: 2, Reset: bench.Fresh, Pause: 5,
}

var checkedJobs = map[string][]workload.Job{"w": {{ID: "a", Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 500}}}

// writeAttempts writes a sweep of a benchmark. attempt returns the attempt of a trial, which takes 100 s without its workload.
func writeAttempts(t *testing.T, b bench.Benchmark, attempt func(t bench.Trial) bench.Attempt) *bench.Store {
	t.Helper()
	s := bench.Sweep{ID: "20261123T120000Z-b", Name: "b", Source: "hive", Benchmark: b}
	s.Configurations, s.Trials = bench.Plan(b)
	st, err := bench.Create(t.TempDir(), s, checkedJobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range s.Trials {
		a := attempt(tr)
		a.Trial, a.Number, a.Began = tr.Number, 1, s.Created
		a.Ended = a.Began.Add(time.Duration(100+a.Phases["play"]) * time.Second)
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(st.Folder, "trials", fmt.Sprint(tr.Number), "1")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "result.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// A trial counts as long as former trials of its cell took. Other trials count with the times of their jobs, and with the deployments of former
// trials or an assumption.
func TestExpectDuration(t *testing.T) {
	played := func(seconds float64, complete bool) func(bench.Trial) bench.Attempt {
		return func(bench.Trial) bench.Attempt {
			return bench.Attempt{State: bench.Valid, Phases: map[string]float64{"play": seconds}, Result: trial.Result{Complete: complete}}
		}
	}
	first, short, clean, failed := checked, checked, checked, played(10, true)
	first.Cells = checked.Cells[:1]
	short.Workloads = map[string]bench.WorkloadOptions{"w": {TimeLimit: 60}}
	clean.Reset = "clean"
	broken := func(tr bench.Trial) bench.Attempt { a := failed(tr); a.State = bench.Failed; return a }
	for _, tt := range []struct {
		name   string
		b      bench.Benchmark
		former []*bench.Store
		want   Duration
		text   string
	}{
		{"no former trial", checked, nil, Duration{Seconds: 4 * 565, Trials: 4, Deployment: 60, Assumed: true},
			"expected duration: 37m40s, without builds and repeated trials (4 trials by the times of the jobs and an assumed 1m0s per deployment)"},
		{"both cells", checked, []*bench.Store{writeAttempts(t, checked, played(20, true))}, Duration{Seconds: 480, Trials: 4, Measured: 4, Deployment: 100},
			"expected duration: 8m0s, without builds and repeated trials (4 trials as in former trials of the cell)"},
		{"one cell", checked, []*bench.Store{writeAttempts(t, first, played(20, true))}, Duration{Seconds: 2*120 + 2*600, Trials: 4, Measured: 2, Deployment: 100},
			"expected duration: 24m0s, without builds and repeated trials (2 trials as in former trials of the cell; 2 trials by the times of the jobs and a measured 1m40s per deployment)"},
		{"cut short", checked, []*bench.Store{writeAttempts(t, short, played(60, false))}, Duration{Seconds: 4 * 600, Trials: 4, Deployment: 100}, ""},
		{"not finished", checked, []*bench.Store{writeAttempts(t, checked, played(1000, false))}, Duration{Seconds: 4 * 1100, Trials: 4, Measured: 4, Deployment: 100}, ""},
		{"failed", checked, []*bench.Store{writeAttempts(t, checked, broken)}, Duration{Seconds: 4 * 565, Trials: 4, Deployment: 60, Assumed: true}, ""},
		{"another reset", clean, []*bench.Store{writeAttempts(t, checked, played(20, true))}, Duration{Seconds: 4*505 + 60*deployments(clean), Trials: 4, Deployment: 60, Assumed: true}, ""},
	} {
		described := map[string]bench.Workload{}
		w, err := bench.DescribeWorkload("w", tt.b.Workloads["w"], checkedJobs["w"])
		if err != nil {
			t.Fatal(err)
		}
		described["w"] = w
		h, err := NewHistory(tt.b, described, checkedJobs, tt.former)
		if err != nil {
			t.Fatal(err)
		}
		_, trials := bench.Plan(tt.b)
		got := h.Expect(trials)
		if got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
		if text := got.String(); tt.text != "" && text != tt.text {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
	// Nothing is known about the jobs of a program: they take until the time limit.
	_, trials := bench.Plan(checked)
	h, err := NewHistory(checked, nil, nil, nil)
	if err != nil || h.Expect(trials).Seconds != 4*1065 {
		t.Errorf("a program: %+v, %v", h, err)
	}
	// A trial of this sweep counts more than those of earlier ones, as soon as it is there.
	w, err := bench.DescribeWorkload("w", checked.Workloads["w"], checkedJobs["w"])
	if err != nil {
		t.Fatal(err)
	}
	h, err = NewHistory(checked, map[string]bench.Workload{"w": w}, checkedJobs, []*bench.Store{writeAttempts(t, checked, played(20, true))})
	if err != nil || h.Expect(trials).Left() != "about 8m0s left" {
		t.Errorf("%+v, %v", h, err)
	}
	now := bench.Sweep{ID: "now", Benchmark: checked, Workloads: map[string]bench.Workload{"w": w}}
	for i, seconds := range []int{40, 60} {
		at := bench.Attempt{State: bench.Valid, Ended: time.Time{}.Add(time.Duration(seconds) * time.Second), Result: trial.Result{Complete: true}}
		h.Add(now, bench.Trial{Cell: checked.Cells[0], Number: i}, at)
	}
	want := Duration{Seconds: 2*50 + 2*120, Trials: 4, Measured: 4}
	if got := h.Expect(trials); got.Seconds != want.Seconds || got.Measured != 4 {
		t.Errorf("%+v", got)
	}
	if got := h.Expect(trials[:0]).Left(); got != "about 0s left" {
		t.Error(got)
	}
}

// deployments returns how often the configuration changes in a sweep.
func deployments(b bench.Benchmark) (n float64) {
	_, trials := bench.Plan(b)
	for i, t := range trials {
		if i == 0 || trials[i-1].Configuration != t.Configuration {
			n++
		}
	}
	return n
}

// A check has the cells in the order of the benchmark, and a cell without a result is an error.
func TestCheck(t *testing.T) {
	b := checked
	b.Repetitions = 1
	doubtful := bench.Attempt{State: bench.Suspect, Limited: []string{"places"}, Reasons: []string{"a doubt", "another"}}
	states := map[string]bench.Attempt{"1": doubtful, "2": {State: bench.Invalid, Reasons: []string{"steal"}}}
	st := writeAttempts(t, b, func(tr bench.Trial) bench.Attempt { return states[tr.Cell["roles.node.count"]] })
	c, err := NewCheck(st)
	if err != nil {
		t.Fatal(err)
	}
	rows := c.Table().Rows
	want := [][]string{
		{"node.count=1", "suspect", "1m40s", "places", "a doubt; another"},
		{"node.count=2", "invalid", "1m40s", "", "steal"},
	}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("%q", rows)
	}
	data, err := json.Marshal(c.Cells[1])
	if err != nil || !strings.Contains(string(data), `"seconds":100,"limited":[],"reasons":["steal"]`) {
		t.Errorf("%s, %v", data, err)
	}
	if err := c.Problems(); failure.KindOf(err) != failure.Check || err.Error() != "1 of 2 cells have no result: node.count=2" {
		t.Errorf("%v", err)
	}
	c.Cells = c.Cells[:1]
	if err := c.Problems(); err != nil {
		t.Errorf("a suspect result counts: %v", err)
	}
}
