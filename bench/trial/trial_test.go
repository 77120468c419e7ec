package trial

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

var began = time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)

var ended = began.Add(100 * time.Second)

func event(at float64, kind, job string, task int) player.Event {
	return player.Event{Time: began.Add(time.Duration(math.Round(at * 1e9))), Kind: kind, Job: job, Task: task}
}

func prepare(t *testing.T, jobs ...workload.Job) []workload.Job {
	t.Helper()
	jobs, err := workload.Prepare(jobs)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

var near = cmpopts.EquateApprox(0, 1e-9)

// TestMeasure has a workload of three jobs: one with events of the job only, a gang with events of tasks only, and a job after the gang.
func TestMeasure(t *testing.T) {
	jobs := prepare(t,
		workload.Job{ID: "a", Submit: 1, Runtime: 20, CPUs: 2},
		workload.Job{ID: "b", Submit: 2, Nodes: 2, Runtime: 5, Gang: true},
		workload.Job{ID: "c", Submit: 3, Runtime: 1, After: []string{"b"}},
	)
	got := Measure(jobs, began, ended, []player.Event{
		event(1.1, player.Submit, "a", 0), event(1.2, player.Created, "a", 0), event(1.5, player.Admitted, "a", 0), event(2, player.Bound, "a", 0),
		event(2.5, player.Launched, "a", 0), event(3, player.Start, "a", 0), event(22.5, player.Last, "a", 0), event(23, player.Finish, "a", 0),
		event(2, player.Submit, "b", 0), event(2.5, player.Created, "b", 1), event(2.75, player.Created, "b", 2), event(2.6, player.Admitted, "b", 0),
		event(3, player.Bound, "b", 1), event(4, player.Bound, "b", 2), event(4, player.Start, "b", 1), event(6, player.Start, "b", 2),
		event(8.75, player.Last, "b", 1), event(10.75, player.Last, "b", 2),
		event(9, player.Finish, "b", 1), event(11, player.Finish, "b", 2),
		event(11.5, player.Submit, "c", 0), event(12, player.Created, "c", 0), event(12.2, player.Admitted, "c", 0), event(12.25, player.Bound, "c", 0),
		event(13, player.Start, "c", 0), event(13.9, player.Last, "c", 0), event(14, player.Finish, "c", 0),
		event(99, player.Finish, "of another trial", 0), event(99, player.Finish, "b", 3),
	}, 2, 4)
	want := Result{
		Jobs: 3, Tasks: 4, Nodes: 2, CPUs: 4, Finished: 3, Complete: true, Began: began, Ended: began.Add(23 * time.Second),
		Metrics: map[string]float64{
			"throughput": 3.0 / 22, "makespan": 22, "submit_error_max": 0.5, // c, which should have been submitted at 11
			"wait_p50": 2, "wait_p90": 4, "wait_max": 4, // a 2, b 4, c 2
			"admit_p50":    0.2,                                           // a 0.3, b 0.1, c 0.2
			"schedule_p50": 0.8, "schedule_p90": 1.5, "schedule_max": 1.5, // a 0.8, b 1.5, c 0.25
			"launch_p50":    0.5,  // a 0.5
			"start_p50":     1,    // a 1, b 2, c 0.75
			"end_p50":       0.25, // a 0.5, b 0.25, c 0.1
			"slowdown_p50":  1,    // a 21.5/19.5, b 9/10, c 3/10
			"gang_skew_p50": 2, "gang_skew_max": 2,
			"utilisation": (20*2 + 2*5 + 1) / (4 * 22.0), "occupancy": (21*2 + 7*2 + 1.75) / (4 * 22.0),
		},
	}
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
}

// TestAbsent: a metric that cannot be computed is absent.
func TestAbsent(t *testing.T) {
	jobs := prepare(t, workload.Job{ID: "a", Runtime: 1}, workload.Job{ID: "b", Runtime: 1}, workload.Job{ID: "c", Runtime: 1, Nodes: 2, Gang: true})
	for _, c := range []struct {
		name     string
		events   []player.Event
		finished int
		failed   int
		metrics  map[string]float64
	}{
		{"no events", nil, 0, 0, map[string]float64{"throughput": 0}},
		{"submitted only", []player.Event{event(0.25, player.Submit, "a", 0)}, 0, 0, map[string]float64{"submit_error_max": 0.25, "throughput": 0}},
		{
			// The median is known, although c never starts. b has no event of its placement.
			"two of three", []player.Event{
				event(1, player.Bound, "a", 0), event(2, player.Finish, "a", 0), event(3, player.Start, "b", 1), event(4, player.Failed, "b", 0),
				event(5, player.Start, "c", 1), event(6, player.Finish, "c", 1),
			}, 1, 1, map[string]float64{"throughput": 0.01},
		},
		{
			"a task fails", []player.Event{event(1, player.Finish, "c", 1), event(2, player.Failed, "c", 2), event(3, player.Finish, "c", 2)}, 0, 1,
			map[string]float64{"throughput": 0},
		},
		{
			"a task fails, but the job finishes", []player.Event{event(2, player.Failed, "c", 2), event(4, player.Finish, "c", 0)}, 1, 0,
			map[string]float64{"throughput": 0.01},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Measure(jobs, began, ended, c.events, 2, 4)
			if r.Finished != c.finished || r.Failed != c.failed || r.Complete {
				t.Errorf("finished %d, failed %d, complete %v", r.Finished, r.Failed, r.Complete)
			}
			if diff := cmp.Diff(c.metrics, r.Metrics, near); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAfterFailure: a job that waits for others should be submitted when the last of them ends, also with an error.
func TestAfterFailure(t *testing.T) {
	jobs := prepare(t,
		workload.Job{ID: "a"}, workload.Job{ID: "b"}, workload.Job{ID: "c", After: []string{"a", "b"}}, workload.Job{ID: "d", Submit: 9, After: []string{"a"}},
	)
	events := []player.Event{
		event(2, player.Finish, "a", 0), event(4, player.Failed, "b", 0), event(4.5, player.Submit, "c", 0), event(9.25, player.Submit, "d", 0),
	}
	if got := Measure(jobs, began, ended, events, 1, 0).Metrics["submit_error_max"]; math.Abs(got-0.5) > 1e-9 {
		t.Errorf("c is %v s late, want 0.5", got)
	}
	// Without the end of b, the time at which c should be submitted is unknown.
	if got := Measure(jobs, began, ended, append(events[:1:1], events[2:]...), 1, 0).Metrics["submit_error_max"]; math.Abs(got-0.25) > 1e-9 {
		t.Errorf("d is %v s late, want 0.25", got)
	}
}

// TestThink: a job with a think time should be submitted this time after the end of the job before it, and waits from then on.
func TestThink(t *testing.T) {
	jobs := prepare(t, workload.Job{ID: "a"}, workload.Job{ID: "b", After: []string{"a"}, Think: 3})
	events := []player.Event{
		event(0, player.Submit, "a", 0), event(0, player.Start, "a", 0), event(0, player.Last, "a", 0), event(2, player.Finish, "a", 0),
		event(5.5, player.Submit, "b", 0), event(7, player.Start, "b", 0), event(7, player.Last, "b", 0), event(8, player.Finish, "b", 0),
	}
	got := Measure(jobs, began, ended, events, 1, 0).Metrics
	if late, wait := got["submit_error_max"], got["wait_max"]; math.Abs(late-0.5) > 1e-9 || math.Abs(wait-2) > 1e-9 {
		t.Errorf("b is %v s late and waits %v s, want 0.5 and 2", late, wait)
	}
}

// TestDependent: a job that the scheduler has before it may run waits for the scheduler only from then on.
func TestDependent(t *testing.T) {
	jobs := prepare(t, workload.Job{ID: "a"}, workload.Job{ID: "b", After: []string{"a"}})
	events := []player.Event{
		event(0, player.Created, "a", 0), event(1, player.Bound, "a", 0), event(50, player.Finish, "a", 0),
		event(0, player.Created, "b", 0), event(52, player.Bound, "b", 0), event(60, player.Finish, "b", 0),
	}
	if got := Measure(jobs, began, ended, events, 1, 0).Metrics["schedule_max"]; math.Abs(got-2) > 1e-9 {
		t.Errorf("b was scheduled within %v s, want 2", got)
	}
	got := Measure(jobs, began, ended, events[:4], 1, 0).Metrics
	if _, have := got["wait_max"]; have || math.Abs(got["throughput"]-0.01) > 1e-9 {
		t.Errorf("without the start of b: %v", got)
	}
}

// TestLostStamps: if a task of a finished job has not reported its first instruction, no time of another event takes its place. The metrics
// that need it are absent, and the jobs are counted.
func TestLostStamps(t *testing.T) {
	const jobs = 100
	for _, lost := range []int{0, 1, 40, 60, 100} {
		var list []workload.Job
		var events []player.Event
		for i := range jobs {
			id := fmt.Sprintf("j%d", i)
			list = append(list, workload.Job{ID: id})
			events = append(events, event(1, player.Bound, id, 0), event(4, player.Finish, id, 0))
			if i >= lost {
				events = append(events, event(3, player.Start, id, 0), event(3.5, player.Last, id, 0))
			}
		}
		r := Measure(prepare(t, list...), began, ended, events, 2, 0)
		for _, name := range []string{"wait_p50", "start_p50", "end_p50", "slowdown_p50"} {
			if _, have := r.Metrics[name]; have != (lost == 0) || r.Unstamped != lost {
				t.Errorf("%d lost: %s %t, %d counted", lost, name, have, r.Unstamped)
			}
		}
	}
}

// TestRates: a rate is that of the middle of the events, so that slow first and last ones do not count.
func TestRates(t *testing.T) {
	var jobs []workload.Job
	var events []player.Event
	for i := range 21 {
		id := fmt.Sprintf("j%d", i)
		jobs = append(jobs, workload.Job{ID: id})
		at := 10 + float64(i)/4
		switch i {
		case 0:
			at = 0
		case 20:
			at = 1000
		}
		events = append(events, event(at, player.Bound, id, 1), event(at, player.Bound, id, 0), // both are the same placement
			event(at/2, player.Created, id, 1))
	}
	jobs = prepare(t, jobs...)
	got := Measure(jobs, began, ended, events, 1, 0).Metrics
	if math.Abs(got["bind_rate"]-4) > 1e-9 || math.Abs(got["create_rate"]-8) > 1e-9 {
		t.Errorf("the rates are %v and %v, want 4 and 8", got["bind_rate"], got["create_rate"])
	}
	if r, have := Measure(jobs, began, ended, events[:27], 1, 0).Metrics["bind_rate"]; have {
		t.Errorf("9 placements have a rate of %v", r)
	}
	for i := range events {
		events[i].Time = began
	}
	if r, have := Measure(jobs, began, ended, events, 1, 0).Metrics["bind_rate"]; have {
		t.Errorf("placements at the same time have a rate of %v", r)
	}
}

// TestRandom checks properties of the metrics of random trials: the order of events and repeated later events do not matter, percentiles are
// ordered, and all metrics of jobs are in the table.
func TestRandom(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		jobs, events := randomTrial(t, r)
		want := Measure(jobs, began, ended, events, 3, int(seed%3))
		mixed := slices.Clone(events)
		for _, e := range events[:len(events)/2] {
			if e.Kind != player.Finish && e.Kind != player.Failed {
				e.Time = e.Time.Add(time.Microsecond)
				mixed = append(mixed, e)
			}
		}
		r.Shuffle(len(mixed), func(i, k int) { mixed[i], mixed[k] = mixed[k], mixed[i] })
		got := Measure(jobs, began, ended, mixed, 3, int(seed%3))
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Result{}, "Ended"), near); diff != "" {
			t.Fatalf("seed %d: the order matters: %s", seed, diff)
		}
		for name, v := range got.Metrics {
			seen[name] = true
			if strings.HasSuffix(name, "_p99") && got.Jobs < MinJobsP99 {
				t.Errorf("seed %d: %d jobs have a %s", seed, got.Jobs, name)
			}
			if !slices.Contains(Metrics, name) {
				t.Errorf("%s is not in the table", name)
			}
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("seed %d: %s is %v", seed, name, v)
			}
		}
		for _, m := range []string{"wait", "admit", "schedule", "launch", "start", "end", "slowdown", "gang_skew"} {
			before := 0.0
			for _, p := range []string{"_p50", "_p90", "_p99", "_max"} {
				if v, have := got.Metrics[m+p]; have && v < before {
					t.Errorf("seed %d: %s%s is %v, less than %v", seed, m, p, v, before)
				} else if have {
					before = v
				}
			}
		}
		if got.Finished+got.Failed > got.Jobs || got.Complete != (got.Finished == got.Jobs) {
			t.Errorf("seed %d: %d finished, %d failed of %d", seed, got.Finished, got.Failed, got.Jobs)
		}
		if u := got.Metrics["utilisation"]; u > 0 && got.CPUs == 0 {
			t.Errorf("seed %d: a utilisation of %v without processors", seed, u)
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(Metrics[:slices.Index(Metrics, "submit_capacity")])), slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("metrics that no random trial had: %s", diff)
	}
}

// randomTrial returns a workload and its events. In two of three trials all jobs finish.
func randomTrial(t *testing.T, r *rand.Rand) ([]workload.Job, []player.Event) {
	var jobs []workload.Job
	broken := r.IntN(3) == 0
	for i := range 1 + r.IntN(30) + r.IntN(20)/19*MinJobsP99 {
		j := workload.Job{ID: fmt.Sprintf("j%d", i), Submit: 10 * r.Float64(), Nodes: 1 + r.IntN(3), Gang: r.IntN(2) == 0, Runtime: 20 * r.Float64()}
		jobs = append(jobs, j)
	}
	jobs = prepare(t, jobs...)
	var events []player.Event
	for _, j := range jobs {
		at := j.Submit + r.Float64()
		events = append(events, event(at, player.Submit, j.ID, 0))
		perTask := r.IntN(2) == 0
		stop := 8
		if broken {
			stop = r.IntN(9)
		}
		for task := 1; task <= j.Tasks; task++ {
			at := at
			for _, kind := range []string{player.Created, player.Admitted, player.Bound, player.Launched, player.Start, player.Last, player.Finish}[:min(stop, 7)] {
				at += r.Float64()
				n := task
				if !perTask {
					n = 0
				}
				events = append(events, event(at, kind, j.ID, n))
			}
		}
		if stop == 0 {
			events = append(events, event(at, player.Failed, j.ID, 0))
		}
	}
	return jobs, events
}

// A limit is compared with the metric of its kind, which is measured.
func TestNearLimit(t *testing.T) {
	for kind, want := range map[string]string{
		player.Bound: "bind_rate", player.Start: "bind_rate", "": "bind_rate", player.Created: "create_rate", player.Submit: "throughput", player.Finish: "throughput",
	} {
		for rate, near := range map[float64]bool{96: false, 97.5: true, 102.5: true, 104: false} {
			if got := NearLimit(player.Limit{Rate: 100, Kind: kind}, map[string]float64{want: rate}); got != near {
				t.Errorf("%s of events %q at %v: %t", want, kind, rate, got)
			}
		}
		if NearLimit(player.Limit{Rate: 100, Kind: kind}, map[string]float64{"makespan": 100}) {
			t.Errorf("a limit of events %q concerns another metric than %s", kind, want)
		}
		if !slices.Contains(Metrics, want) {
			t.Errorf("%s of events %s is no metric", want, kind)
		}
	}
	if NearLimit(player.Limit{Value: "x"}, map[string]float64{"bind_rate": 0}) {
		t.Error("a rate is near a limit that is no rate")
	}
}
