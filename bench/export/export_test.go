package export

import (
	"bytes"
	"encoding/csv"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
)

var update = flag.Bool("update", false, "write the golden files")

// exported is what the writer gets.
type exported struct {
	sweep    bench.Sweep
	attempts map[int][]bench.Attempt
}

func newSweep(name, id string, factors ...string) bench.Sweep {
	s := bench.Sweep{Name: name, ID: id, Nixbench: "1.2.0", Created: time.Unix(1_800_000_000, 250_000_000), Benchmark: bench.Benchmark{Factors: map[string][]string{}}}
	for _, f := range factors {
		s.Benchmark.Factors[f] = nil
	}
	return s
}

// add adds an attempt of a trial.
func (e *exported) add(cell map[string]string, block, number, attempt int, state string, metrics map[string]float64) {
	if e.attempts == nil {
		e.attempts = map[int][]bench.Attempt{}
	}
	e.sweep.Trials = append(e.sweep.Trials, bench.Trial{Cell: cell, Block: block, Number: number})
	e.attempts[number] = append(e.attempts[number], bench.Attempt{Number: attempt, State: state, Result: trial.Result{Metrics: metrics}})
}

func example() exported {
	first := map[string]string{"nodes": "4", "scheduler": "kube scheduler/50%", "block": "x", "x factor=1": "1-8"}
	second := map[string]string{"nodes": "64", "scheduler": "line 1\nline \"2\", \\n", "block": "", "x factor=1": "é\x7f"}
	e := exported{sweep: newSweep(`scale, "large"`, "s-1", "nodes", "scheduler", "block", "x factor=1")}
	e.add(first, 0, 9, 1, bench.Valid, map[string]float64{"makespan": 1})
	e.add(first, 1, 1, 1, bench.Valid, map[string]float64{"makespan": 389.5, "tasks": 1000000, "wait p99/median": 1e-7})
	e.add(second, 1, 2, 1, bench.Invalid, map[string]float64{"makespan": math.Inf(1), "x.y": 1, "x-y": math.NaN()})
	e.add(second, 1, 3, 2, bench.Invalid, nil)
	e.add(first, 2, 4, 1, bench.Valid, map[string]float64{"makespan": 12})
	e.attempts[1][0].Requests = []player.Request{{Program: "api", Verb: "POST", Resource: "jobs.batch", Count: 12}, {Program: "api", Verb: "GET", Resource: "/healthz", Count: 1}}
	e.attempts[2][0].Reasons = []string{"a, \"b\"", "c"}
	e.attempts[2][0].Noise = &noise.Report{Steal: new(0.25), After: &noise.Canary{Spin: time.Millisecond}}
	return e
}

// A spreadsheet reads no name as a formula. Numbers stay numbers.
func TestCSVFormulas(t *testing.T) {
	e := exported{sweep: newSweep("=HYPERLINK(0)", "s", "@SUM(1)")}
	e.add(map[string]string{"@SUM(1)": "-1"}, 1, 0, 0, bench.Valid, map[string]float64{"+x": -2.5, "y": math.Inf(-1)})
	e.attempts[0][0].Reasons = []string{"-1+cmd|' /C calc'!A0"}
	var b bytes.Buffer
	if err := WriteCSV(&b, e.sweep, e.attempts); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"sweep", "cell", "'@SUM(1)", "block", "order", "attempt", "verdict", "reasons", "metric", "value"},
		{"'=HYPERLINK(0)", "'@SUM(1)=-1", "-1", "1", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "'+x", "-2.5"},
		{"'=HYPERLINK(0)", "'@SUM(1)=-1", "-1", "1", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "y", "-Inf"},
		{"'=HYPERLINK(0)", "'@SUM(1)=-1", "-1", "1", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "complete", "0"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

func TestGolden(t *testing.T) {
	for file, e := range map[string]exported{"sweep.csv": example(), "empty-sweep.csv": {sweep: newSweep("empty", "s-0")}} {
		var got bytes.Buffer
		if err := WriteCSV(&got, e.sweep, e.attempts); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	e := example()
	if err := WriteCSV(fullDisk{}, e.sweep, e.attempts); !errors.Is(err, errFull) {
		t.Errorf("the error is %v", err)
	}
}

// TestCSVIsReadAgain: a table has the values of the sweep after it was read.
func TestCSVIsReadAgain(t *testing.T) {
	var b bytes.Buffer
	e := example()
	if err := WriteCSV(&b, e.sweep, e.attempts); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`scale, "large"`, e.sweep.Trials[2].String(), "", "64", "line 1\nline \"2\", \\n", "é\x7f", "1", "2", "1", "invalid", `a, "b"; c`, "makespan", "+Inf"}
	if len(rows) != 1+3+2+3+4+1+4 {
		t.Fatalf("%d rows", len(rows))
	}
	if diff := cmp.Diff(want, rows[7]); diff != "" {
		t.Error(diff)
	}
}
