package export

import (
	"bytes"
	"encoding/csv"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

var update = flag.Bool("update", false, "write the golden files")

// exported is what the writers of the formats get.
type exported struct {
	sweep  bench.Sweep
	trials []Trial
	jobs   []Job // of the first trial
}

func newSweep(name, id string, factors ...string) bench.Sweep {
	s := bench.Sweep{Name: name, ID: id, Nixbench: "1.2.0", Created: time.Unix(1_800_000_000, 250_000_000), Benchmark: bench.Benchmark{Factors: map[string][]string{}}}
	for _, f := range factors {
		s.Benchmark.Factors[f] = nil
	}
	return s
}

func newTrial(cell map[string]string, block, number, attempt int, state string, metrics map[string]float64) Trial {
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 250_000_000).UTC() }
	return Trial{
		bench.Trial{Cell: cell, Block: block, Number: number},
		bench.Attempt{Number: attempt, State: state, Began: at(10), Ended: at(400), Result: trial.Result{Metrics: metrics}},
	}
}

func example() exported {
	first := map[string]string{"nodes": "4", "scheduler": "kube scheduler/50%", "block": "x", "x factor=1": "1-8"}
	second := map[string]string{"nodes": "64", "scheduler": "line 1\nline \"2\", \\n", "block": "", "x factor=1": "é\x7f"}
	e := exported{
		sweep: newSweep(`scale, "large"`, "s-1", "nodes", "scheduler", "block", "x factor=1"),
		trials: []Trial{
			newTrial(first, 1, 1, 1, bench.Valid, map[string]float64{"makespan": 389.5, "tasks": 1000000, "wait p99/median": 1e-7}),
			newTrial(second, 1, 2, 1, bench.Invalid, map[string]float64{"makespan": math.Inf(1), "x.y": 1, "x-y": math.NaN()}),
			newTrial(second, 1, 3, 2, bench.Invalid, nil),
			newTrial(first, 2, 4, 1, bench.Valid, map[string]float64{"makespan": 12}),
		},
		jobs: []Job{
			{Job: workload.Job{ID: "c", Submit: 20, Nodes: 2, Tasks: 4, CPUs: 2, Memory: 512, User: "bob", After: []string{"a", "b"}},
				Submitted: new(20.4)},
			{Job: workload.Job{ID: "a", Nodes: 1, Tasks: 1, CPUs: 1, User: "alice", Queue: "long jobs"},
				Submitted: new(0.0), Started: new(1.5), Ended: new(11.4)},
			{Job: workload.Job{ID: "b", Submit: 3, Nodes: 1, Tasks: 3, CPUs: 1, User: "bob", Queue: "short"},
				Submitted: new(3.0), Started: new(3.2), Ended: new(18.0), Failed: true},
		},
	}
	e.trials[0].Attempt.Requests = []player.Request{{Program: "api", Verb: "POST", Resource: "jobs.batch", Count: 12}, {Program: "api", Verb: "GET", Resource: "/healthz", Count: 1}}
	e.trials[1].Attempt.Reasons = []string{"a, \"b\"", "c"}
	e.trials[1].Attempt.Noise = &noise.Report{Steal: new(0.25), After: &noise.Canary{Fsync: time.Millisecond}}
	return e
}

var writers = []struct {
	file  string
	write func(io.Writer, exported) error
}{
	{"sweep.csv", func(w io.Writer, e exported) error { return CSV(w, e.sweep, e.trials) }},
	{"sweep.bench", func(w io.Writer, e exported) error { return GoBench(w, e.sweep, e.trials) }},
	{"trial.swf", firstTrial},
}

func firstTrial(w io.Writer, e exported) error { return SWF(w, e.sweep, e.trials[0], e.jobs) }

// A spreadsheet reads no name as a formula. Numbers stay numbers.
func TestCSVFormulas(t *testing.T) {
	tr := newTrial(map[string]string{"@SUM(1)": "-1"}, 0, 0, 0, bench.Valid, map[string]float64{"+x": -2.5, "y": math.Inf(-1)})
	tr.Attempt.Reasons = []string{"-1+cmd|' /C calc'!A0"}
	var b bytes.Buffer
	if err := CSV(&b, newSweep("=HYPERLINK(0)", "s", "@SUM(1)"), []Trial{tr}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"sweep", "cell", "'@SUM(1)", "block", "order", "attempt", "verdict", "reasons", "metric", "value"},
		{"'=HYPERLINK(0)", "'@SUM(1)=-1", "-1", "0", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "'+x", "-2.5"},
		{"'=HYPERLINK(0)", "'@SUM(1)=-1", "-1", "0", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "y", "-Inf"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

func TestGolden(t *testing.T) {
	empty := exported{sweep: newSweep("empty", "s-0")}
	for _, w := range writers {
		for prefix, e := range map[string]exported{"": example(), "empty-": empty} {
			if w.file == "trial.swf" && len(e.trials) == 0 {
				e.trials = []Trial{newTrial(nil, 1, 1, 1, bench.Valid, nil)}
			}
			t.Run(prefix+w.file, func(t *testing.T) {
				var got bytes.Buffer
				if err := w.write(&got, e); err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata", prefix+w.file)
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
					t.Error(diff)
				}
			})
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	for _, w := range writers {
		if err := w.write(fullDisk{}, example()); !errors.Is(err, errFull) {
			t.Errorf("%s: the error is %v", w.file, err)
		}
	}
}

// TestCSVIsReadAgain: a table has the values of the sweep after it was read.
func TestCSVIsReadAgain(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, example().sweep, example().trials); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`scale, "large"`, example().trials[1].String(), "", "64", "line 1\nline \"2\", \\n", "é\x7f", "1", "2", "1", "invalid", `a, "b"; c`, "makespan", "+Inf"}
	if len(rows) != 1+3+2+3+4+1 {
		t.Fatalf("%d rows", len(rows))
	}
	if diff := cmp.Diff(want, rows[6]); diff != "" {
		t.Error(diff)
	}
}

// TestGoBenchForm: all lines have the form that programs for this format accept.
func TestGoBenchForm(t *testing.T) {
	var b bytes.Buffer
	if err := GoBench(&b, example().sweep, example().trials); err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile(`^[a-z][^\sA-Z:]*: .*$`)
	result := regexp.MustCompile(`^Benchmark[^\sa-z]\S*( [0-9]+)(( \S+) (\S+))+$`)
	results := 0
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || config.MatchString(line):
		case result.MatchString(line):
			results++
			fields := strings.Fields(line)
			if regexp.MustCompile(`-\d+$`).MatchString(fields[0]) {
				t.Errorf("the end of %s is taken for a number of processors", fields[0])
			}
			for i := 2; i < len(fields); i += 2 {
				if _, err := strconv.ParseFloat(fields[i], 64); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		default:
			t.Errorf("a line of no form: %q", line)
		}
	}
	if results != 3 {
		t.Errorf("%d results", results)
	}
}

func TestSWFForm(t *testing.T) {
	var b bytes.Buffer
	if err := firstTrial(&b, example()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "; ") && !regexp.MustCompile(`^-?\d+( -?\d+){17}\n$`).MatchString(line) {
			t.Errorf("no header and no record: %q", line)
		}
	}
}

// TestSWFIsReadAgain: an exported trial is a trace that a workload can be made of.
func TestSWFIsReadAgain(t *testing.T) {
	var b bytes.Buffer
	if err := firstTrial(&b, example()); err != nil {
		t.Fatal(err)
	}
	jobs, dropped, err := workload.ReadSWF(&b, workload.SWFOptions{})
	if len(jobs) != 2 || dropped.Runtime != 1 || err != nil || jobs[0].Runtime != 10 || jobs[1].Submit != 3 {
		t.Errorf("%+v, %+v, %v", jobs, dropped, err)
	}
}
