package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const trace = `; Version: 2.2
; MaxProcs: 64

  1 100  5   60  8 -1 -1 -1 -1 -1 1  3 -1 -1 2 -1 -1 -1
  2 110 -1   -1 -1 -1 -1  4 -1 -1 5  3 -1 -1 2 -1 -1 -1
  3 120  0   30 -1 -1 -1 -1 -1 -1 1  3 -1 -1 2 -1 -1 -1
  4 130  0   30  4 -1 -1 10 -1 -1 0 -1 -1 -1 2 -1  1 10
  5  -1  0   30  4 -1 -1  4 -1 -1 1  1 -1 -1 2 -1 -1 -1
  6 140  0   10  4 -1 -1  4 -1 -1 2  1 -1 -1 2 -1 -1 -1
  6 140  0   40  4 -1 -1  4 -1 -1 1  1 -1 -1 2 -1  2 -1
  7 140  0    0  1 -1 -1  1 -1 -1 5  1 -1 -1 2 -1  9 -1
`

func TestReadSWF(t *testing.T) {
	all := []Job{
		{ID: "job-1", Submit: 0, Nodes: 2, Tasks: 2, CPUs: 4, Runtime: 30, Gang: true},
		{ID: "job-4", Submit: 0, Nodes: 3, Tasks: 3, CPUs: 4, Runtime: 15, Gang: true, After: []string{"job-1"}, Think: 5},
		{ID: "job-6", Submit: 20, Nodes: 1, Tasks: 1, CPUs: 4, Runtime: 20},
		{ID: "job-7", Submit: 20, Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 0},
	}
	for _, tt := range []struct {
		name    string
		options SWFOptions
		want    []Job
	}{
		{"all", SWFOptions{Compression: 2, CPUsPerNode: 4}, all},
		{"some", SWFOptions{MaxJobs: 2, Compression: 2, CPUsPerNode: 4}, all[:2]},
		{"defaults", SWFOptions{MaxJobs: 1}, []Job{{ID: "job-1", Nodes: 8, Tasks: 8, CPUs: 1, Runtime: 60, Gang: true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadSWF(strings.NewReader(trace), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReadSWFUnordered: a trace that is not sorted begins at 0, too, and a job does not precede one that was submitted before it.
func TestReadSWFUnordered(t *testing.T) {
	got, err := ReadSWF(strings.NewReader("1 50 0 1 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n"+
		"2 20 0 1 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 1 0\n"), SWFOptions{})
	want := []Job{{ID: "job-2", Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 1}, {ID: "job-1", Submit: 30, Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 1}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestReadSWFRequests: a job has the time limit that it requested, as the trace is scaled, and the account and queue that its numbers stand for.
func TestReadSWFRequests(t *testing.T) {
	const trace = "1 0 0 60 1 -1 -1 1 3600 -1 1 7 -1 -1 2 -1 -1 -1\n2 0 0 60 1 -1 -1 1 60 -1 1 8 -1 -1 3 -1 -1 -1\n3 0 0 60 1 -1 -1 1 -1 -1 1 8 -1 -1 3 -1 -1 -1\n"
	got, err := ReadSWF(strings.NewReader(trace), SWFOptions{Compression: 10, Users: map[string]string{"7": "alice"}, Queues: map[string]string{"2": "long"}})
	job := func(id, user, queue string, limit float64) Job {
		return Job{ID: id, Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 6, Limit: limit, User: user, Queue: queue}
	}
	want := []Job{job("job-1", "alice", "long", 360), job("job-2", "", "", 66), job("job-3", "", "", 0)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s%v", diff, err)
	}
}

// TestReadSWFThink: a job is submitted its think time after the end of its preceding job. Without a think time, it is submitted at its own
// time, or after that end.
func TestReadSWFThink(t *testing.T) {
	record := func(number, submit, preceding, think int) string {
		return fmt.Sprintf("%d %d 0 60 1 -1 -1 1 -1 -1 1 1 -1 -1 1 -1 %d %d\n", number, submit, preceding, think)
	}
	trace := record(1, 40, -1, -1) + record(2, 140, 1, 30) + record(3, 150, 2, 0) + record(4, 160, 2, -1) + record(5, 170, -1, 30)
	got, err := ReadSWF(strings.NewReader(trace), SWFOptions{Compression: 10})
	job := func(id string, submit, think float64, after ...string) Job {
		return Job{ID: id, Submit: submit, Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 6, After: after, Think: think}
	}
	want := []Job{job("job-1", 0, 0), job("job-2", 0, 3, "job-1"), job("job-3", 0, 0, "job-2"), job("job-4", 12, 0, "job-2"), job("job-5", 13, 0)}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s%v", diff, err)
	}
}

// TestLength: jobs that wait for others begin after them.
func TestLength(t *testing.T) {
	jobs, err := Prepare([]Job{{ID: "a", Runtime: 2}, {ID: "b", Runtime: 1, After: []string{"a"}, Think: 3}, {ID: "c", Submit: 5, After: []string{"b"}}, {ID: "d", Submit: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []float64{0, 2, 6, 6, 6} { // d is before c
		if got := Length(jobs[:n]); got != want {
			t.Errorf("%d jobs take %v s, want %v", n, got, want)
		}
	}
}

// TestThink: a think time counts from the end of a job.
func TestThink(t *testing.T) {
	jobs := []Job{{ID: "a"}, {ID: "b", Think: 1}}
	if _, err := Prepare(jobs); err == nil || !strings.Contains(err.Error(), "job 2 (b): think (1) needs a job in `after`") {
		t.Errorf("the error is %v", err)
	}
	jobs[1].After = []string{"a"}
	if _, err := Prepare(jobs); err != nil {
		t.Error(err)
	}
}

func TestReadSWFErrors(t *testing.T) {
	record := func(number, submit, runtime, cpus string) string {
		return fmt.Sprintf("%s %s 0 %s %s -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n", number, submit, runtime, cpus)
	}
	one := record("1", "0", "1", "1")
	for _, tt := range []struct {
		name, trace string
		options     SWFOptions
		want        string
	}{
		{"no jobs", "; only a header\n", SWFOptions{}, "the workload has no jobs"},
		{"all dropped", record("1", "0", "-1", "1") + record("2", "0", "1", "0"), SWFOptions{}, "(2 jobs have no time of submission, run time or processors"},
		{"columns", one + "1 2 3\n", SWFOptions{}, "line 2: a job of a trace has 18 columns, not 3"},
		{"no number", record("1", "0", "x", "1"), SWFOptions{}, `line 1: column 4: "x" is no number`},
		{"not a number", record("1", "0", "NaN", "1"), SWFOptions{}, "column 4"},
		{"too many processors", record("1", "0", "1", "1e12"), SWFOptions{}, "at most 100000000 processors"},
		{"twice", one + one, SWFOptions{}, "two jobs with this id"},
		{"too long", one + record("2", "1e9", "1", "1"), SWFOptions{}, "a year of seconds"},
		{"think time", one + "2 0 0 1 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 1 1e9\n", SWFOptions{}, "think (1e+09) must be between 0 and a year of seconds"},
		{"negative compression", one, SWFOptions{Compression: -1}, "must be positive"},
		{"negative limit", one, SWFOptions{MaxJobs: -1}, "must be positive"},
		{"negative nodes", one, SWFOptions{CPUsPerNode: -1}, "must be positive"},
	} {
		if _, err := ReadSWF(strings.NewReader(tt.trace), tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v", tt.name, err)
		}
	}
	broken := errors.New("connection lost")
	if _, err := ReadSWF(iotest.ErrReader(broken), SWFOptions{}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// Each trace is an error, or has jobs that can be submitted.
func FuzzReadSWF(f *testing.F) {
	f.Add(trace, 0, 2.0, 4)
	f.Add("1 1e300 0 1 1 -1 -1 99999999999 -1 -1 1 -1 -1 -1 -1 -1 1 -1", 1, 0.5, 1)
	f.Fuzz(func(t *testing.T, text string, most int, compression float64, cpus int) {
		jobs, err := ReadSWF(strings.NewReader(text), SWFOptions{MaxJobs: most, Compression: compression, CPUsPerNode: cpus})
		if err != nil {
			return
		}
		for _, j := range jobs {
			if !(j.Submit >= 0) || !(j.Runtime >= 0) || j.Nodes < 1 || j.Tasks < 1 || j.CPUs < 1 {
				t.Errorf("%+v", j)
			}
		}
	})
}
