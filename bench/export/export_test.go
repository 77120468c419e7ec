package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
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
	"github.com/nixbench/nixbench/bench/workload"
)

var update = flag.Bool("update", false, "write the golden files")

func sweep() Sweep {
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 250_000_000).UTC() }
	first := map[string]string{"nodes": "4", "scheduler": "kube scheduler/50%", "block": "x", "my factor=1": "1-8"}
	second := map[string]string{"nodes": "64", "scheduler": "line 1\nline \"2\", \\n", "block": "", "my factor=1": "é\x7f"}
	return Sweep{
		Name: `scale, "large"`, ID: "s-1", Version: "1.2.0", Started: at(0),
		Factors: []string{"nodes", "scheduler", "block", "my factor=1"},
		Trials: []Trial{
			{Cell: "c-1", Levels: first, Block: 1, Order: 1, Attempt: 1, Verdict: "valid", Started: at(10), Ended: at(400), Events: "trials/1/events.jsonl",
				Metrics:  map[string]float64{"makespan": 389.5, "tasks": 1000000, "wait p99/median": 1e-7},
				Requests: map[string]float64{"requests api POST jobs.batch": 12, "requests api GET /healthz": 1},
				Jobs: []Job{
					{Job: workload.Job{ID: "c", Submit: 20, Nodes: 2, Tasks: 4, CPUs: 2, Memory: 512, User: "bob", After: []string{"a", "b"}},
						Submitted: new(20.4)},
					{Job: workload.Job{ID: "a", Nodes: 1, Tasks: 1, CPUs: 1, User: "alice", Queue: "long jobs"},
						Submitted: new(0.0), Started: new(1.5), Ended: new(11.4)},
					{Job: workload.Job{ID: "b", Submit: 3, Nodes: 1, Tasks: 3, CPUs: 1, User: "bob", Queue: "short"},
						Submitted: new(3.0), Started: new(3.2), Ended: new(18.0), Failed: true},
				}},
			{Cell: "c-2", Levels: second, Block: 1, Order: 2, Attempt: 1, Verdict: "invalid", Reasons: []string{"a, \"b\"", "c"}, Ended: at(900),
				Noise:   map[string]float64{"steal": 0.25, "canary_after_fsync_seconds": 0.001},
				Metrics: map[string]float64{"makespan": math.Inf(1), "x.y": 1, "x-y": math.NaN()}},
			{Cell: "c-2", Levels: second, Block: 1, Order: 3, Attempt: 2, Verdict: "invalid", Metrics: nil},
			{Cell: "c-1", Levels: first, Block: 2, Order: 4, Attempt: 1, Verdict: "valid", Metrics: map[string]float64{"makespan": 12}},
		},
	}
}

func firstTrial(w io.Writer, s Sweep) error {
	if len(s.Trials) == 0 {
		return SWF(w, s, Trial{})
	}
	return SWF(w, s, s.Trials[0])
}

var writers = []struct {
	file  string
	write func(io.Writer, Sweep) error
}{
	{"sweep.csv", CSV},
	{"sweep.bench", GoBench},
	{"trial.swf", firstTrial},
}

// A spreadsheet reads no name as a formula. Numbers stay numbers.
func TestCSVFormulas(t *testing.T) {
	s := Sweep{Name: "=HYPERLINK(0)", Factors: []string{"@SUM(1)"},
		Trials: []Trial{{Cell: "c", Levels: map[string]string{"@SUM(1)": "-1"}, Verdict: "valid", Reasons: []string{"-1+cmd|' /C calc'!A0"}, Metrics: map[string]float64{"+x": -2.5, "y": math.Inf(-1)}}}}
	var b bytes.Buffer
	if err := CSV(&b, s); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"sweep", "cell", "'@SUM(1)", "block", "order", "attempt", "verdict", "reasons", "metric", "value"},
		{"'=HYPERLINK(0)", "c", "-1", "0", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "'+x", "-2.5"},
		{"'=HYPERLINK(0)", "c", "-1", "0", "0", "0", "valid", "'-1+cmd|' /C calc'!A0", "y", "-Inf"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

func TestGolden(t *testing.T) {
	empty := Sweep{Name: "empty", ID: "s-0", Started: time.Unix(0, 0)}
	for _, w := range writers {
		for prefix, s := range map[string]Sweep{"": sweep(), "empty-": empty} {
			t.Run(prefix+w.file, func(t *testing.T) {
				var got bytes.Buffer
				if err := w.write(&got, s); err != nil {
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
		if err := w.write(fullDisk{}, sweep()); !errors.Is(err, errFull) {
			t.Errorf("%s: the error is %v", w.file, err)
		}
	}
}

// TestCSVIsReadAgain: a table has the values of the sweep after it was read.
func TestCSVIsReadAgain(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, sweep()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`scale, "large"`, "c-2", "64", "line 1\nline \"2\", \\n", "", "é\x7f", "1", "2", "1", "invalid", `a, "b"; c`, "makespan", "+Inf"}
	if len(rows) != 1+3+2+3+2+1 {
		t.Fatalf("%d rows", len(rows))
	}
	if diff := cmp.Diff(want, rows[6]); diff != "" {
		t.Error(diff)
	}
}

// TestGoBenchForm: all lines have the form that programs for this format accept.
func TestGoBenchForm(t *testing.T) {
	var b bytes.Buffer
	if err := GoBench(&b, sweep()); err != nil {
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
	if err := firstTrial(&b, sweep()); err != nil {
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
	if err := firstTrial(&b, sweep()); err != nil {
		t.Fatal(err)
	}
	jobs, dropped, err := workload.ReadSWF(&b, workload.SWFOptions{})
	if len(jobs) != 2 || dropped.Runtime != 1 || err != nil || jobs[0].Runtime != 10 || jobs[1].Submit != 3 {
		t.Errorf("%+v, %+v, %v", jobs, dropped, err)
	}
}

// The figures of noise have names in exports. Those that were not observed are left out.
func TestNoiseFigures(t *testing.T) {
	data, err := json.Marshal(noise.Report{
		Steal: new(0.5), KernelAlerts: []string{"x"}, Disturbances: []noise.Disturbance{{Machine: "w-1", State: "paused"}}, After: &noise.Canary{Fsync: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"steal": 0.5, "kernel_alerts": 1, "disturbed_machines": 1, "canary_after_fsync_seconds": 0.001}
	if got := noiseFigures(bench.Attempt{Noise: data}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := noiseFigures(bench.Attempt{}); got != nil {
		t.Errorf("got %v for an attempt without a report", got)
	}
}
