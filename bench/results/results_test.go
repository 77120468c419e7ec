package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
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
				Complete: true, Jobs: 2, Began: at, Nodes: nodes, CPUs: 4, Metrics: map[string]float64{"throughput": rate(tr.Cell) * (1 + 0.001*float64(tr.Block))},
			},
		}
		var events bytes.Buffer
		for _, job := range []string{"a", "b"} {
			for i, kind := range []string{"", player.Created, player.Start, player.Finish, player.Bound, player.Last} {
				data, err := json.Marshal(player.Event{Time: at.Add(time.Duration([]int{0, 1, 2, 3, 2, 3}[i]) * time.Second), Kind: kind, Job: job})
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
			Claims: map[string]stats.Claim{
				"faster": {Metric: "throughput", Factor: "roles.node.count", A: "4", B: "2", Op: ">", Value: 1.5},
				"least":  {Metric: "throughput", Op: ">=", Value: 15, Where: map[string][]string{"roles.node.count": {"2"}}},
			},
			Metrics: []string{"throughput"},
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

// The JSON of bench show has means, ratios with answers, the noise, claims, and the differences of systems. A refuted claim is an error.
func TestShowJSON(t *testing.T) {
	st := writeSweep(t, sizes(), bySize, 2)
	got, text := report(t, st)
	for path, want := range map[string]string{
		`results.#`: "1", `results.0.hollow`: "false", `results.0.means.#(metric=="throughput").trials`: "6", `results.0.means.#(metric=="throughput").unit`: "jobs/s",
		`results.0.ratios.#(metric=="throughput").answer`: "holds (claim faster)", `results.0.ratios.#(metric=="throughput").kind`: "claim", `results.0.ratios.#(metric=="throughput").factor`: "roles.node.count",
		`results.0.floor.#`: "0", `results.0.noise.#`: "1", `claims.0.verdict`: "holds", `claims.1.verdict`: "does not hold", `attempts.#`: "12", `calibration.#`: "0",
		`systems.0.changed`: "2", `systems.0.paths`: "3", `systems.0.packages.0`: "changed: slurm-25.05", `systems.0.undeclared.0`: "another build of slurm-25.05",
	} {
		if v := got.Get(path).String(); v != want {
			t.Errorf("%s is %q, want %q", path, v, want)
		}
	}
	if !strings.HasPrefix(text, "Claims\n") || !strings.Contains(text, "\n12 of 12  a reason  node.count=") {
		t.Errorf("the claims are not first, or the trials have no reasons:\n%s", text)
	}
	r, err := NewReport(st)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CheckClaims(); failure.KindOf(err) != failure.Check || err.Error() != "the results refute: least: throughput >= 15, roles.node.count=2" {
		t.Errorf("the refuted claim: %v", err)
	}
	for _, want := range []string{"differs in 2 of 3 paths", "Confounded: levels differ in something that the matrix does not declare", "visible ratio", "least: throughput >= 15, roles.node.count=2", "99th percentiles of workloads with fewer than 100 jobs are absent"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not contain %s:\n%s", want, text)
		}
	}
}

// The page has the reasons of trials, and the differences of systems.
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
		"differs in 2 of 3 paths", "a reason", "<td>another build of slurm-25.05</td>", "<dd>slurm-25.05</dd>",
	} {
		if !bytes.Contains(html.Bytes(), []byte(want)) {
			t.Errorf("the page does not contain %s", want)
		}
	}
}

// bench compare finds one cause of a change of all systems, and has answers only for three sweeps on each side.
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
	compare := func(x, y []*bench.Store) string {
		c, err := Compare(x, y)
		if err != nil {
			t.Fatal(err)
		}
		return c.String() + textOf(c.Tables())
	}
	for _, pair := range [][2]*bench.Store{{machines, hollow}, {hollow, machines}} { // in both directions
		text := compare(pair[:1], pair[1:])
		for _, want := range []string{"confounded: the nodes of one sweep are machines", "– a sweep is one observation, and an answer needs three on each side", "  –  –\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("the comparison does not contain %q:\n%s", want, text)
			}
		}
	}
	if text := compare([]*bench.Store{hollow}, []*bench.Store{fewer}); !strings.Contains(text, "the sweeps differ in one thing:") || !strings.Contains(text, "(follows from another difference)") {
		t.Errorf("another number of hollow nodes:\n%s", text)
	}
	var x, y []*bench.Store
	for i, rate := range []float64{10, 10.2, 9.9} {
		x = append(x, writeSweep(t, one(fmt.Sprint("before-", i), nil, 0, "h", "a1"), at(rate), 8))
		y = append(y, writeSweep(t, one(fmt.Sprint("after-", i), nil, 0, "h", "a2"), at(2*rate), 8))
	}
	if text := compare(x, y); !strings.Contains(text, "the sweeps differ in one thing:") || !strings.Contains(text, "throughput  ×2.00  ") || !strings.Contains(text, "  more\n") {
		t.Errorf("three sweeps on each side:\n%s", text)
	}
	if text := compare(x[:2], []*bench.Store{y[0], machines}); !strings.Contains(text, "within a side, in 20261123T120000Z-machines") || strings.Contains(text, "  more\n") {
		t.Errorf("a side with different sweeps:\n%s", text)
	}
}

// A plan says what its comparisons can see: thirty comparisons with six blocks see little.
func TestDesign(t *testing.T) {
	b := bench.Benchmark{Repetitions: 6, Metrics: []string{"throughput"}}
	for _, scheduler := range []string{"a", "b", "c"} {
		for _, nodes := range []string{"1", "2"} {
			b.Cells = append(b.Cells, map[string]string{"scheduler": scheduler, "roles.node.count": nodes, "workload": "null"})
		}
	}
	if got, want := NewDesign(b, 0.03).String(), "if the noise of a trial is 3 %, 9 comparisons with 6 blocks can see a ratio of 1.11"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.Metrics, b.Repetitions = nil, 2
	if got := NewDesign(b, 0.03); got.Comparisons != 54 || got.String() != "comparisons have no answers: they need 3 blocks" {
		t.Errorf("%+v: %s", got, got)
	}
	b.Cells = b.Cells[:1]
	if got := NewDesign(b, 0.03).String(); got != "there is nothing to compare: no factor has several levels" {
		t.Error(got)
	}
}

// A claim about a baseline reads the sweeps that are in the same folder, and a sweep that is extended spends its level.
func TestBaselines(t *testing.T) {
	folder := t.TempDir()
	s := sizes()
	s.Benchmark.Claims = map[string]stats.Claim{"no-slower": {Metric: "throughput", Baseline: []string{"a", "b", "c", "gone"}, Op: ">=", Value: 0.5}}
	s.Benchmark.MaxBlocks, s.Looks = 12, []int{3}
	st := writeSweep(t, s, bySize, 2)
	for i, name := range []string{"a", "b", "c", "this"} {
		other := writeSweep(t, s, func(cell map[string]string) float64 { return bySize(cell) * (1 + 0.01*float64(i)) }, 2)
		if err := os.Rename(other.Folder, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
		st = &bench.Store{Folder: filepath.Join(folder, name), Sweep: other.Sweep}
	}
	got, text := report(t, st)
	if c := got.Get("claims.0"); c.Get("verdict").String() != "holds" || c.Get("parts.#").Int() != 2 || c.Get("parts.0.value").Float() < 1 {
		t.Errorf("%s", c)
	}
	if !strings.Contains(text, "The sweep may have up to 12 blocks: the answers after 6 blocks use a level of 1.2 %.") {
		t.Error(text)
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
	if !strings.Contains(text, "Calibration: ratio of hollow nodes") {
		t.Errorf("%s", text)
	}
}

// A reader learns which cells measure something other than the scheduler.
func TestDescribeLimited(t *testing.T) {
	a := map[string]string{"scheduler": "a", "node": "1", "limits": "tuned"}
	b := map[string]string{"scheduler": "b", "node": "2", "limits": "tuned"}
	in := page.Input{Cells: []map[string]string{a, b}}
	for i, limited := range [][]string{{"places"}, {"kwok", "places"}, {"places"}, nil} {
		in.Trials = append(in.Trials, page.Trial{Sample: stats.Sample{Cell: in.Cells[(i+1)%2]}, Attempt: bench.Attempt{Limited: limited}})
	}
	want := []string{"Limited by kwok in at least one trial: a node=1.", "Limited by places in at least one trial: a node=1; b node=2."}
	if got := describeLimited(in); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
