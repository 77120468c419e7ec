package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

func TestContract(t *testing.T) {
	playertest.Run(t, func(t *testing.T) player.Player { return newFake(t).player() })
	playertest.Launch(t, func(t *testing.T, delay time.Duration) player.Player {
		f := newFake(t)
		f.launch = delay
		return f.player()
	})
}

// play runs jobs on a fake cluster with a time limit.
func play(t *testing.T, f *fakeCluster, jobs []workload.Job) ([]player.Event, error) {
	t.Helper()
	prepared, err := workload.Prepare(jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	events, _, err := playertest.Play(ctx, f.player(), prepared)
	return events, err
}

func equal(n int, prefix string, j workload.Job) []workload.Job {
	var out []workload.Job
	for i := range n {
		j.ID = fmt.Sprintf("%s-%d", prefix, i)
		out = append(out, j)
	}
	return out
}

// A burst of equal jobs is one request to slurmctld, within MaxArraySize. Jobs with other properties are requests of their own.
func TestArrays(t *testing.T) {
	f := newFake(t)
	f.config = strings.ReplaceAll(f.config, "MaxArraySize            = 1001", "MaxArraySize            = 11")
	events, err := play(t, f, slices.Concat(equal(25, "a", workload.Job{}), equal(1, "b", workload.Job{CPUs: 2})))
	if err != nil {
		t.Fatal(err)
	}
	finished := 0
	for _, e := range events {
		if e.Kind == player.Finish {
			finished++
		}
	}
	if f.taken != 3+4 || finished != 26 || f.count["bash"] != 1 {
		t.Errorf("%d requests in %d scripts, %d jobs have finished", f.taken-3, f.count["bash"], finished)
	}
	f = newFake(t)
	f.delay = 20 * time.Millisecond
	p := f.player()
	p.arrays = false
	jobs, err := workload.Prepare(equal(10, "a", workload.Job{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil || f.taken != 3+10 || p.Observed().Capacity < 5 || p.Observed().Capacity > 50 {
		t.Errorf("without arrays: %d requests, %v per second, %v", f.taken-3, p.Observed().Capacity, err)
	}
}

// The events have the nodes and the times of this machine, although the clock of the controller is ahead.
func TestEvents(t *testing.T) {
	begin := time.Now()
	events, err := play(t, newFake(t), []workload.Job{{ID: "gang", Nodes: 2, Runtime: 0.05, Gang: true}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, strings.TrimSpace(e.Kind+" "+e.Node))
		if e.Time.Before(begin) || e.Time.After(time.Now()) {
			t.Errorf("%s at %v", e.Kind, e.Time.Sub(begin))
		}
	}
	if diff := cmp.Diff([]string{"submit", "created", "bound compute-[1-2]", "start compute-1", "start compute-1", "last compute-1", "last compute-1", "finish"}, got); diff != "" {
		t.Error(diff)
	}
}

// Each command has its own time of submission. The tasks of an array have one time.
func TestSubmitTimes(t *testing.T) {
	f := newFake(t)
	f.delay = 60 * time.Millisecond
	events, err := play(t, f, slices.Concat(equal(2, "array", workload.Job{}), equal(1, "b", workload.Job{CPUs: 2}), equal(1, "c", workload.Job{CPUs: 3})))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]time.Time{}
	for _, e := range events {
		if e.Kind == player.Submit {
			at[e.Job] = e.Time
		}
	}
	first, second := at["b-0"].Sub(at["array-0"]), at["c-0"].Sub(at["b-0"])
	if !at["array-0"].Equal(at["array-1"]) || first < f.delay || second < f.delay || f.count["bash"] != 1 {
		t.Errorf("%v and %v between the commands of %d scripts", first, second, f.count["bash"])
	}
}

// A clock that drifts during the workload is a doubt, and the doubt ends with the next workload.
func TestDrift(t *testing.T) {
	f := newFake(t)
	p := f.player()
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	f.drift = 10 * time.Second
	for want := range 2 {
		if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil || len(p.Observed().Doubts) != 1-want {
			t.Errorf("%q, %v", p.Observed().Doubts, err)
		}
		if c := p.Observed().Clocks; want == 0 && (c.After.Offset-c.Before.Offset).Round(time.Second) != f.drift || c.Before.Error <= 0 {
			t.Errorf("%+v", c)
		}
	}
}

// A job that sbatch refuses fails. The other jobs run, also those that wait for it.
func TestRefused(t *testing.T) {
	events, err := play(t, newFake(t), []workload.Job{{ID: "a", Queue: "missing"}, {ID: "b"}, {ID: "c", After: []string{"a", "b"}}, {ID: "d", Submit: 0.2, After: []string{"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	finished := 0
	for _, e := range events {
		switch {
		case e.Kind == player.Failed && (e.Job != "a" || e.Text != "Batch job submission failed: Invalid partition name specified"):
			t.Errorf("%+v", e)
		case e.Kind == player.Finish:
			finished++
		}
	}
	if finished != 3 {
		t.Errorf("%+v", events)
	}
}

func TestFailedJob(t *testing.T) {
	f := newFake(t)
	f.exit = 3
	events, err := play(t, f, []workload.Job{{ID: "a"}})
	if last := events[len(events)-1]; err != nil || last.Kind != player.Failed || last.Text != "exit status 3" {
		t.Errorf("%+v, %v", events, err)
	}
}

// If journald drops messages, Play returns an error that names the setting instead of waiting for ever.
func TestDroppedMessages(t *testing.T) {
	for _, text := range []string{"done", "InitPrio", "NodeList", "WEXITSTATUS"} {
		f := newFake(t)
		f.drops = text
		if _, err := play(t, f, []workload.Job{{ID: "a"}}); err == nil || !strings.Contains(err.Error(), "LogRateLimitIntervalSec=0") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Errors and answers that are no answers end Play, or are tried again.
func TestAnswers(t *testing.T) {
	lost := errors.New("connection lost")
	for name, test := range map[string]struct {
		program string
		from    int // the first of the answers that are replaced
		to      int
		out     string
		err     error
		want    string // empty: no error
	}{
		"no configuration":     {"scontrol", 1, 1, "", lost, "connection lost"},
		"no clock":             {"date", 3, 3, "today\n", nil, "read the clock"},
		"a failed read":        {"journalctl", 1, 3, "", lost, ""},
		"no log":               {"journalctl", 1, 1000, "", lost, "connection lost"},
		"a log without JSON":   {"journalctl", 1, 1000, "Failed to seek\n", nil, "journalctl printed"},
		"a log without a time": {"journalctl", 1, 1000, `{"__CURSOR":"x","MESSAGE":"_job_complete: JobId=3 done"}` + "\n", nil, "without a time"},
		"no script":            {"bash", 1, 1, "", lost, "submit jobs: connection lost"},
		"no id":                {"bash", 1, 1, "0 1.000000 \n", nil, "printed no job id"},
		"a missing answer":     {"bash", 1, 1, "\n", nil, "unexpected line"},
		"an unknown command":   {"bash", 1, 1, "7 1.000000 3\n", nil, "unexpected line"},
		"no time":              {"bash", 1, 1, "0 now 3\n", nil, "unexpected time"},
		"a quiet slurmctld":    {"scontrol", 1, 1, "SlurmctldDebug          = error\n", nil, "set SlurmctldDebug to info"},
	} {
		f := newFake(t)
		f.answer[test.program] = func(n int) (string, error) {
			if n >= test.from && n <= test.to {
				return test.out, test.err
			}
			return "", nil
		}
		_, err := play(t, f, []workload.Job{{ID: "a", Runtime: 0.1}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := New(engine.Cluster{}, "", false).Clean(t.Context()); err == nil {
		t.Error("a hive without a controller is cleaned")
	}
}

func TestClean(t *testing.T) {
	f := newFake(t)
	f.jobs = []*fakeJob{{id: "3", end: time.Now().Add(time.Hour)}}
	f.answer["squeue"] = func(n int) (string, error) { return strings.Repeat("3\n", max(0, 3-n)), nil } // the job ends slowly
	if err := f.player().Clean(t.Context()); err != nil || f.count["squeue"] != 3 {
		t.Errorf("%v after %d commands", err, f.count["squeue"])
	}
	f.answer["squeue"] = func(int) (string, error) { return "3\n4_1\n", nil }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.player().Clean(ctx); err == nil || !strings.Contains(err.Error(), "cancel the jobs: context deadline exceeded") {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	got, err := newFake(t).player().Usage(t.Context())
	want := map[string]player.Usage{"slurmctld": {CPU: 1.5, Memory: 1 << 20}, "slurmd": {CPU: 4.5, Memory: 3 << 20}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestLimits(t *testing.T) {
	f := newFake(t)
	f.config = "SchedulerType           = sched/backfill\nMaxJobCount             = 10000\n" +
		"SchedulerParameters     = defer,bf_interval=5,batch_sched_delay=0\n"
	read := func() map[string]string {
		limits, err := f.player().Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, l := range limits {
			got[l.Name] = l.Value
		}
		return got
	}
	got := read()
	for name, want := range map[string]string{
		"slurmctld: MaxJobCount": "10000", "slurmctld: MaxArraySize": "", "SchedulerParameters: defer": "set", "SchedulerParameters: bf_interval": "5",
		"SchedulerParameters: batch_sched_delay": "0", "SchedulerParameters: default_queue_depth": "100 (default)", "SchedulerParameters: bf_continue": "",
		"slurmd: Epilog": "none: after a job, slurmctld starts the next one in its loop, and not before batch_sched_delay",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	f.config += "SlurmctldParameters     = enable_configless,rl_enable,rl_refill_rate=10\n"
	if got := read()["slurmctld: SlurmctldParameters"]; got != "enable_configless,rl_enable,rl_refill_rate=10" {
		t.Errorf("SlurmctldParameters: %q", got)
	}
	config := f.config
	for lines, want := range map[string]string{
		"Epilog                  = (null)\n":                                             "none: after a job, slurmctld starts the next one in its loop, and not before batch_sched_delay",
		"Epilog                  = /bin/true\nEpilogMsgTime           = 2000 usec\n":     "/bin/true",
		"Epilog[0]               = /bin/true\nEpilog[1]               = /etc/clean.sh\n": "/bin/true, /etc/clean.sh",
	} {
		f.config = config + lines
		if got := read()["slurmd: Epilog"]; got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
}
