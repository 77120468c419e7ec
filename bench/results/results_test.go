package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

// writeSweep writes a sweep with six blocks of the cells, each of which has a configuration. rate is the throughput of a cell, nodes its nodes.
func writeSweep(t *testing.T, s bench.Sweep, rate func(cell map[string]string) float64, nodes int) *bench.Store {
	t.Helper()
	s.ID, s.Source = "20261123T120000Z-"+s.Name, "hive"
	s.Benchmark.Repetitions = 6
	configurations, trials := bench.Plan(s.Benchmark)
	for i := range configurations {
		configurations[i].Hollow, configurations[i].Closure = s.Configurations[i].Hollow, s.Configurations[i].Closure
	}
	s.Configurations, s.Trials = configurations, trials
	st, err := bench.Create(t.TempDir(), s, map[string][]workload.Job{"null": {{ID: "a", Nodes: 1, Tasks: 1, CPUs: 1}, {ID: "b", Nodes: 1, Tasks: 1, CPUs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, tr := range trials {
		at := began.Add(time.Duration(tr.Number) * time.Minute)
		a := bench.Attempt{
			Trial: tr.Number, Number: 1, Began: at, Ended: at.Add(time.Second), State: bench.Suspect, Reasons: []string{"a reason"},
			Noise: &noise.Report{Steal: new(0.125), SpinRatio: new(1.5)},
			Result: trial.Result{
				Complete: true, Began: at, Nodes: nodes, CPUs: 4, Metrics: map[string]float64{"throughput": rate(tr.Cell) * (1 + 0.001*float64(tr.Block))},
			},
		}
		var events bytes.Buffer
		for _, job := range []string{"a", "b"} {
			for i, kind := range []string{player.Created, player.Bound, player.Finish} {
				data, err := json.Marshal(player.Event{Time: at.Add(time.Duration(i+1) * time.Second), Kind: kind, Job: job})
				if err != nil {
					t.Fatal(err)
				}
				events.Write(append(data, '\n'))
			}
		}
		result, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(st.Folder, "trials", fmt.Sprint(tr.Number), "1")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"result.json": result, "events.jsonl": events.Bytes()} {
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return st
}

// textOf returns the text of tables.
func textOf(tables []page.Table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s\n%s\n%s\n", t.Title, t.Note, strings.Join(t.Head, "  "))
		for _, row := range t.Rows {
			b.WriteString(strings.Join(row, "  ") + "\n")
		}
	}
	return b.String()
}

// report returns the report of a sweep as JSON and as text.
func report(t *testing.T, st *bench.Store) (gjson.Result, string) {
	t.Helper()
	r, err := NewReport(st)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return gjson.ParseBytes(data), textOf(r.Tables())
}

// sizes returns a sweep of two sizes. The second one has another build of a program, which the matrix does not declare.
func sizes() bench.Sweep {
	return bench.Sweep{
		Name: "sizes",
		Benchmark: bench.Benchmark{
			Factors: map[string][]string{"roles.node.count": {"2", "4"}, "workload": {"null"}},
			Cells:   []map[string]string{{"roles.node.count": "2", "workload": "null"}, {"roles.node.count": "4", "workload": "null"}},
			Claims:  map[string]string{"faster": "ratio(throughput, roles.node.count, 4, 2) > 1.5"},
			Quiet:   noise.Thresholds{Steal: 0.01, ForeignCPU: 0.05, PSICPU: 0.05, Canary: 0.05}, Order: "blocks", Reset: bench.Fresh,
		},
		Configurations: []bench.Configuration{
			{Closure: []string{"/nix/store/a1-slurm-25.05", "/nix/store/b1-hosts"}}, {Closure: []string{"/nix/store/a2-slurm-25.05", "/nix/store/b1-hosts"}},
		},
	}
}

func bySize(cell map[string]string) float64 {
	return map[string]float64{"2": 10, "4": 20, "1": 19, "8": 20}[cell["roles.node.count"]]
}

// The JSON of bench show has medians, ratios with answers, the noise floor, claims, and the differences of systems.
func TestShowJSON(t *testing.T) {
	st := writeSweep(t, sizes(), bySize, 2)
	got, text := report(t, st)
	for path, want := range map[string]string{
		`results.#`: "1", `results.0.hollow`: "false", `results.0.medians.#(metric=="throughput").trials`: "6", `results.0.medians.#(metric=="throughput").unit`: "jobs/s",
		`results.0.ratios.#(metric=="throughput").answer`: "more", `results.0.ratios.#(metric=="throughput").factor`: "roles.node.count",
		`results.0.floor.of`: "blocks", `results.0.floor.ratios.#`: "2", `claims.0.verdict`: "holds", `attempts.#`: "12", `calibration.#`: "0",
		`systems.0.changed`: "2", `systems.0.paths`: "3", `systems.0.packages.0`: "changed: slurm-25.05", `systems.0.undeclared.0`: "another build of slurm-25.05",
	} {
		if v := got.Get(path).String(); v != want {
			t.Errorf("%s is %q, want %q", path, v, want)
		}
	}
	for _, want := range []string{"differs in 2 of 3 paths", "Confounded: levels differ in something that the matrix does not declare", "largest ratio"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not contain %s:\n%s", want, text)
		}
	}
}

// The page has the times of the jobs, the figures of noise with their limits, and the differences of systems.
func TestShowPage(t *testing.T) {
	st := writeSweep(t, sizes(), bySize, 2)
	parts, err := ReadParts(st)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	var html bytes.Buffer
	if err := page.Render(&html, parts[0]); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"finished: 2 of 2 jobs, the last after 3.00 s", "12 of 12 jobs, median 2.00 s", ": steal 12.5 %, suspect", ": canary 50.0 %, suspect", `class="line limit"`,
		"differs in 2 of 3 paths", "a reason", "not declared: another build of slurm-25.05",
	} {
		if !bytes.Contains(html.Bytes(), []byte(want)) {
			t.Errorf("the page does not contain %s", want)
		}
	}
}

// bench compare finds one cause of a change of all systems, and prints a calibration if only hollow nodes differ.
func TestCompareSweeps(t *testing.T) {
	one := func(name string, sets []string, hollow int, hash, slurm string) bench.Sweep {
		cells := []map[string]string{{"workload": "null"}}
		return bench.Sweep{
			Name: name, Sets: sets, SourceHash: hash, Benchmark: bench.Benchmark{Cells: cells, Factors: map[string][]string{"workload": {"null"}}},
			Configurations: []bench.Configuration{{Hollow: hollow, Closure: []string{"/nix/store/" + slurm + "-slurm-25.05"}}},
		}
	}
	at := func(rate float64) func(map[string]string) float64 {
		return func(map[string]string) float64 { return rate }
	}
	machines := writeSweep(t, one("machines", []string{"roles.node.count=8"}, 0, "h", "a1"), at(10), 8)
	hollow := writeSweep(t, one("hollow", []string{"roles.node.hollow=8"}, 8, "h", "a2"), at(9), 8)
	fewer := writeSweep(t, one("fewer", []string{"roles.node.hollow=4"}, 4, "h", "a2"), at(9), 4)
	edited := writeSweep(t, one("edited", []string{"roles.node.hollow=8"}, 8, "other", "a2"), at(9), 8)
	compare := func(x, y *bench.Store) string {
		c, err := Compare(x, y)
		if err != nil {
			t.Fatal(err)
		}
		return c.String() + textOf(c.Tables())
	}
	for _, pair := range [][2]*bench.Store{{machines, hollow}, {hollow, machines}} { // in both directions
		text := compare(pair[0], pair[1])
		for _, want := range []string{"the sweeps differ in their hollow nodes only:", "Calibration: ratio of the medians of hollow nodes to those of as many machines", "throughput  0.9  "} {
			if !strings.Contains(text, want) {
				t.Errorf("the calibration does not contain %q:\n%s", want, text)
			}
		}
	}
	for name, other := range map[string]*bench.Store{"other number of nodes": fewer, "edited hive": edited} {
		if text := compare(machines, other); !strings.Contains(text, "confounded: the nodes of one sweep are machines") || strings.Contains(text, "Calibration") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if text := compare(hollow, fewer); !strings.Contains(text, "the sweeps differ in one thing:") || !strings.Contains(text, "(follows from another difference)") {
		t.Errorf("another number of hollow nodes:\n%s", text)
	}
}

// A sweep with 8 hollow nodes and 8 machines has a calibration of its own.
func TestCalibrationWithinSweep(t *testing.T) {
	cells := []map[string]string{
		{"roles.node.count": "8", "roles.node.hollow": "0", "workload": "null"}, {"roles.node.count": "1", "roles.node.hollow": "8", "workload": "null"},
	}
	s := bench.Sweep{
		Name: "calibrate", Benchmark: bench.Benchmark{Cells: cells, Factors: map[string][]string{"workload": {"null"}}},
		Configurations: []bench.Configuration{{}, {Hollow: 8}},
	}
	st := writeSweep(t, s, bySize, 8)
	all, text := report(t, st)
	got := all.Get("calibration")
	if got.Get("#").Int() != 1 || got.Get("0.nodes").Int() != 8 || got.Get("0.ratio").Float() < 0.949 || got.Get("0.ratio").Float() > 0.951 || got.Get("0.answer").String() != "less" {
		t.Errorf("%s", got)
	}
	if !strings.Contains(text, "Calibration: ratio of the medians of hollow nodes") {
		t.Errorf("%s", text)
	}
}

func TestFormatNumbers(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "7": {7}, "1, 3": {1, 3}, "1–2, 4, 20–22": {1, 2, 4, 20, 21, 22}} {
		if got := formatNumbers(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}
