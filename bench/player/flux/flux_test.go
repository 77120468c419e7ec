package flux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	t.Parallel()
	playertest.Run(t, func(t *testing.T) player.Player { return newFake(t).player() })
	playertest.Launch(t, func(t *testing.T, delay time.Duration) player.Player {
		f := newFake(t)
		f.env = append(f.env, fmt.Sprintf("LAUNCH=%f", delay.Seconds()))
		return f.player()
	})
}

// play runs jobs on a fake instance with a time limit.
func play(t *testing.T, f *fakeCluster, jobs ...workload.Job) ([]player.Event, error) {
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

// The events have the nodes and the times of this machine, although the clock of the leader is ahead.
func TestEvents(t *testing.T) {
	begin := time.Now()
	events, err := play(t, newFake(t), workload.Job{ID: "gang", Nodes: 2, Runtime: 0.05, Gang: true})
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
	if len(got) == 10 {
		slices.Sort(got[5:9]) // the first task may end before the second has begun
	}
	if diff := cmp.Diff([]string{"submit", "created", "admitted", "bound compute-[1-2]", "launched compute-[1-2]", "last compute-1", "last compute-1", "start compute-1", "start compute-1", "finish"}, got); diff != "" {
		t.Error(diff)
	}
}

// Jobs that Flux refuses, that are cancelled or that fail have ended, and jobs that wait for them run.
func TestFailedJobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env    string
		failed workload.Job
		want   string
	}{
		"refused":             {"STATUS=0", workload.Job{ID: "a", Queue: "none"}, "'none' is not a valid queue"},
		"cancelled":           {"CANCEL=sleep 77", workload.Job{ID: "a", Runtime: 77}, "cancel: by the test"},
		"exit status":         {"STATUS=768", workload.Job{ID: "a"}, "exit status 3"},
		"killed by a signal":  {"STATUS=9", workload.Job{ID: "a"}, "signal 9"},
		"refused, after none": {"STATUS=0", workload.Job{ID: "a", Queue: "none", Submit: 0.1}, "'none' is not a valid queue"},
	} {
		f := newFake(t)
		f.env = append(f.env, test.env)
		events, err := play(t, f, test.failed, workload.Job{ID: "b", Submit: 0.2, After: []string{"a"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ended := map[string]string{}
		for _, e := range events {
			if e.Kind == player.Failed || e.Kind == player.Finish {
				ended[e.Job] += strings.TrimSpace(e.Kind + " " + e.Text)
			}
		}
		want := map[string]string{"a": "failed " + test.want, "b": "finish"}
		if strings.HasPrefix(test.env, "STATUS=") && test.env != "STATUS=0" {
			want["b"] = want["a"]
		}
		if diff := cmp.Diff(want, ended); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Flux has no memory to allocate, and the player has one user, so such a job is an error before anything runs.
func TestImpossible(t *testing.T) {
	for want, job := range map[string]workload.Job{"job a requests memory": {ID: "a", Memory: 100}, "job a belongs to eve": {ID: "a", User: "eve"}} {
		f := newFake(t)
		if _, err := play(t, f, job); err == nil || !strings.Contains(err.Error(), want) || len(f.count) > 0 {
			t.Errorf("%s: %v, %v", want, err, f.count)
		}
	}
}

// A clock that drifts during the workload is a doubt.
func TestDrift(t *testing.T) {
	f := newFake(t)
	f.drift = 10 * time.Second
	p := f.player()
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil || len(p.Observed().Doubts) != 1 {
		t.Errorf("%q, %v", p.Observed().Doubts, err)
	}
}

// A program that does not start, or ends, ends Play with its last error. Failed reads are tried again.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.env = append(f.env, "PYTHONPATH=/nowhere")
	if _, err := play(t, f, workload.Job{ID: "a"}); err == nil || !strings.Contains(err.Error(), "No module named 'flux'") {
		t.Errorf("without Flux: %v", err)
	}

	f = newFake(t)
	f.answer["tail"] = func(int) (string, error) {
		if lines, _ := os.ReadFile(filepath.Join(f.folder, "lines")); strings.Contains(string(lines), `"submit"`) {
			data, _ := os.ReadFile(filepath.Join(filepath.Dir(f.folder), "pid"))
			_, _ = f.run(t.Context(), "leader-1", nil, "kill", strings.TrimSpace(string(data)))
		}
		return "", nil
	}
	if _, err := play(t, f, workload.Job{ID: "a", Runtime: 60}); err == nil || !strings.Contains(err.Error(), "has ended: it printed no error") {
		t.Errorf("a killed program: %v", err)
	}

	lost := errors.New("connection lost")
	for last, want := range map[int]string{6: "", 1000: "connection lost"} {
		f = newFake(t)
		begun := 0
		f.answer["tail"] = func(n int) (string, error) {
			if _, err := os.Stat(filepath.Join(f.folder, "lines")); err == nil && n > 1 {
				if data, _ := os.ReadFile(filepath.Join(f.folder, "lines")); strings.Contains(string(data), "submit") {
					if begun++; begun < last-2 {
						return "", lost
					}
				}
			}
			return "", nil
		}
		if _, err := play(t, f, workload.Job{ID: "a"}); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d failed reads: %v", last, err)
		}
	}
	f = newFake(t)
	f.answer["tail"] = func(n int) (string, error) { return "{\"ready\": true}\nnonsense\n", nil }
	if _, err := play(t, f, workload.Job{ID: "a"}); err == nil || !strings.Contains(err.Error(), `unexpected line "nonsense`) {
		t.Errorf("a line that is no event: %v", err)
	}
}

// The jobspec is that of `flux submit` with the same -N, -n and -c.
func TestJobspec(t *testing.T) {
	for text, j := range map[string]workload.Job{
		`[{"count":1,"label":"task","type":"slot","with":[{"count":4,"type":"core"}]}] {"per_slot":1} ["true"]`:                                           {CPUs: 4},
		`[{"count":2,"type":"node","with":[{"count":2,"label":"task","type":"slot","with":[{"count":1,"type":"core"}]}]}] {"per_slot":1} ["sleep","1.5"]`: {Nodes: 2, Tasks: 4, Runtime: 1.5},
		`[{"count":2,"type":"node","with":[{"count":2,"label":"task","type":"slot","with":[{"count":1,"type":"core"}]}]}] {"total":3} ["true"]`:           {Nodes: 2, Tasks: 3},
	} {
		j.ID = "j"
		jobs, err := workload.Prepare([]workload.Job{j})
		if err != nil {
			t.Fatal(err)
		}
		spec := jobspec(jobs[0])
		task := spec["tasks"].([]object)[0]
		var got []string
		_, run, _ := strings.Cut(task["command"].([]string)[2], "stamp first\n")
		run, _, _ = strings.Cut(run, "\n")
		for _, part := range []any{spec["resources"], task["count"], strings.Fields(run)} {
			data, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(data))
		}
		if diff := cmp.Diff(text, strings.Join(got, " ")); diff != "" {
			t.Error(diff)
		}
	}
}

func TestLimits(t *testing.T) {
	limits, err := newFake(t).player().Limits(t.Context())
	want := []player.Limit{{Name: "scheduler", Value: "sched-simple"}, {Name: "sched-simple: queue-depth", Value: "8 (default)"}, {Name: "job-manager", Value: `{"inactive-num-limit":1000}`}}
	if diff := cmp.Diff(want, limits); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	const modules = "Module Idle S Sendq Recvq Service\nresource 3 R 0 0\nsched-fluxion-qmanager 3 R 0 0 sched\n\n"
	limits, err = parseLimits(modules + `{"sched-fluxion-qmanager":{"queue-policy":"easy","queue-params":"queue-depth=8192, max-queue-depth=9000"}}` + "\n\n" + `{"name":"sched-simple"}` + "\n")
	want = []player.Limit{
		{Name: "scheduler", Value: "sched-fluxion-qmanager"},
		{Name: "sched-fluxion-qmanager", Value: `{"queue-policy":"easy","queue-params":"queue-depth=8192, max-queue-depth=9000"}`},
	}
	if diff := cmp.Diff(want, limits); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	for module, want := range map[string]string{`{"name":"s","args":["log-level=debug","queue-depth=unlimited"]}`: "unlimited", `{"name":"other"}`: "unknown", "": "unknown"} {
		if got := findQueueDepth("s", module); got != want {
			t.Errorf("%s: %s, want %s", module, got, want)
		}
	}
	for _, out := range []string{"", "Module\nresource 3 R 0 0 \n\n{}\n\n", strings.Replace(modules, "resource", "resource", 1) + "no JSON\n\n"} {
		if _, err := parseLimits(out); err == nil {
			t.Errorf("%q is accepted", out)
		}
	}
}

// The usage of the broker is the sum over all nodes.
func TestUsage(t *testing.T) {
	got, err := newFake(t).player().Usage(t.Context())
	want := map[string]player.Usage{"flux-broker": {CPU: 4.5, Memory: 3 << 20}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

// A cluster without a leader is an error of each method.
func TestNoLeader(t *testing.T) {
	p := New(engine.Cluster{})
	if err := p.Clean(t.Context()); err == nil || !strings.Contains(err.Error(), "no node with the role leader") {
		t.Error(err)
	}
	if _, err := p.Limits(t.Context()); err == nil {
		t.Error("no error")
	}
}
