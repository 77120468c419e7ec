package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	measure "github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

func TestContract(t *testing.T) {
	for _, o := range []Options{{}, {Gangs: Coscheduling, Scheduler: "gangs"}, {Gangs: Volcano}, {Arrays: true}} {
		t.Run(fmt.Sprintf("gangs=%s arrays=%t", o.Gangs, o.Arrays), func(t *testing.T) {
			t.Parallel()
			playertest.Run(t, func(t *testing.T) player.Player { return newFake(t).player(o) })
			playertest.Launch(t, func(t *testing.T, delay time.Duration) player.Player {
				f := newFake(t)
				f.launch = delay
				return f.player(o)
			})
		})
	}
}

// The image is pulled before the workload begins, and its digest is known.
func TestPull(t *testing.T) {
	f := newFake(t)
	f.pulls = 3
	p := f.player(Options{})
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	pulled := false
	if err := p.Play(t.Context(), jobs, func() time.Time {
		pulled = p.Image != "" && f.objects["Pod/image-worker-1"] == nil
		return time.Now()
	}, func(player.Event) {}); err != nil {
		t.Fatal(err)
	}
	if !pulled || p.Image != "docker.io/library/busybox@sha256:1" || f.pulls > 0 {
		t.Errorf("the image is %q, pulled before the workload: %t", p.Image, pulled)
	}
	f = newFake(t)
	f.digest = "a|\nworker-2|b"
	if _, err := play(t, f, Options{}, []workload.Job{{ID: "a"}}); err == nil || !strings.Contains(err.Error(), "is not the same on all workers: a, b") {
		t.Error(err)
	}
}

// With arrays, equal jobs are one request, and each has its own events.
func TestArrays(t *testing.T) {
	f := newFake(t)
	jobs := []workload.Job{{ID: "other", CPUs: 2}, {ID: "gang", Nodes: 2}}
	for i := range 250 {
		jobs = append(jobs, workload.Job{ID: fmt.Sprintf("j%d", i)})
	}
	events, err := play(t, f, Options{Arrays: true}, jobs)
	if err != nil {
		t.Fatal(err)
	}
	finished := map[string]int{}
	for _, e := range events {
		if e.Kind == player.Finish && e.Task == 0 {
			finished[e.Job]++
		}
	}
	if len(f.objects) != 3+1 || len(finished) != 252 { // with the pod of the watch
		t.Errorf("%d objects, %d jobs have finished", len(f.objects), len(finished))
	}
}

// A job that waits for another one is submitted when the watch receives the end, and not when the player reads the watch the next time.
func TestAfter(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b", After: []string{"a"}}, {ID: "c", After: []string{"b"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := newFake(t).player(Options{})
	p.watch.Poll = time.Second
	events, start, err := playertest.Play(t.Context(), p, jobs)
	if err != nil {
		t.Fatal(err)
	}
	late := measure.Measure(jobs, start, time.Now(), events, 1, 0).Metrics["submit_error_max"]
	if t.Logf("a job was submitted %.3f s after the end of the job before it", late); late > 0.3 {
		t.Error("that is late")
	}
}

// play runs jobs on a fake cluster with a time limit.
func play(t *testing.T, f *fakeCluster, o Options, jobs []workload.Job) ([]player.Event, error) {
	t.Helper()
	prepared, err := workload.Prepare(jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	events, _, err := playertest.Play(ctx, f.player(o), prepared)
	return events, err
}

// The tasks of a job have events of their own. The times are those of this machine.
func TestTasks(t *testing.T) {
	begin := time.Now()
	events, err := play(t, newFake(t), Options{}, []workload.Job{{ID: "a", Nodes: 2, Runtime: 0.05}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, e := range events {
		got[e.Kind] = got[e.Kind]*10 + 1 + e.Task
		if e.Time.Before(begin) || e.Time.After(time.Now()) {
			t.Errorf("%s at %v", e.Kind, e.Time.Sub(begin))
		}
	}
	// Task 1, task 2 and the job, but the job is created with its first task, and stamps are those of tasks.
	want := map[string]int{player.Submit: 1, player.Created: 213, player.Bound: 231, player.Launched: 231, player.Start: 23, player.Last: 23, player.Finish: 231}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFailedPod(t *testing.T) {
	f := newFake(t)
	f.exit = "3"
	events, err := play(t, f, Options{}, []workload.Job{{ID: "a", Runtime: 0.01}, {ID: "b", After: []string{"a"}}})
	if last := events[len(events)-1]; err != nil || last.Kind != player.Failed || last.Text != "exit status 3" || last.Job != "b" {
		t.Errorf("%+v, %v", events, err)
	}
}

// A refused Job fails; the others of the same command run.
func TestRefused(t *testing.T) {
	f := newFake(t)
	f.objects["Job/b"] = map[string]any{"kind": "Job"}
	events, err := play(t, f, Options{}, []workload.Job{{ID: "a"}, {ID: "b"}, {ID: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for _, e := range events {
		if e.Kind == player.Finish || e.Kind == player.Failed {
			ends[e.Job] = e.Kind + e.Text
		}
	}
	want := map[string]string{"a": "finish", "c": "finish", "b": `failedError from server (AlreadyExists): error when creating "STDIN": jobs.batch "b" already exists`}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Error(diff)
	}
}

// A job of several in a command is submitted when its pod exists, or when the command ends; a single one when the command starts.
func TestSubmitTimes(t *testing.T) {
	start := time.Now()
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "single"}, {ID: "later", Submit: 9}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Time{}
	tr := newTrial(jobs, start)
	tr.addSubmission(jobs[:3])
	tr.addSubmission(jobs[3:4])
	started, pod, end := tr.jobs["a"].started, start.Add(time.Second), start.Add(3*time.Second)
	tr.addChanges([]change{{at: pod.Add(ahead), pod: "b-0", job: "b", task: 1}, {at: start.Add(ahead - time.Minute), pod: "c-0", job: "c", task: 1}})
	if err := tr.addCreation(creation{jobs: jobs[:3], arrays: objects{}.arrays(jobs[:3]), out: []byte("job.batch/a\njob.batch/b\njob.batch/c\nexit status 0\n"), at: end}); err != nil {
		t.Fatal(err)
	}
	if err := tr.addCreation(creation{jobs: jobs[3:4], arrays: objects{}.arrays(jobs[3:4]), out: []byte("job.batch/single\nexit status 0\n"), at: end}); err != nil {
		t.Fatal(err)
	}
	for _, e := range tr.listEvents("cp-1", player.Clocks{Before: player.Clock{Offset: ahead}}) {
		if e.Kind == player.Submit {
			got[e.Job] = e.Time
		}
	}
	want := map[string]time.Time{"a": end, "b": pod, "c": started, "single": tr.jobs["single"].started}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A clock that drifts during the workload is a doubt.
func TestDrift(t *testing.T) {
	f := newFake(t)
	f.drift = 10 * time.Second
	p := f.player(Options{})
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil || len(p.Observed().Doubts) != 1 {
		t.Errorf("%q, %v", p.Observed().Doubts, err)
	}
	if c := p.Observed().Clocks; (c.After.Offset-c.Before.Offset).Round(time.Second) != f.drift || c.Before.Error <= 0 {
		t.Errorf("%+v", c)
	}
}

// A watch that ends during the workload is a doubt.
func TestInterruptedWatch(t *testing.T) {
	f := newFake(t)
	jobs, err := workload.Prepare([]workload.Job{{ID: "a", Runtime: 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	p := f.player(Options{})
	for _, want := range []string{"", "cp-1: the API server ended the watch of the pods 2 times during the workload, so that times may be late"} {
		if want != "" {
			f.mu.Lock()
			now := time.Now()
			for at, text := range map[time.Duration]string{
				-1: watchEnd + "|||||||", 100: watchEnd + "|||||||", 170: "ADDED|" + firstPodName + "||||Pending||",
				180: watchEnd + "|||||||", 190: watchEnd + "|||||||", 200: "ADDED|" + firstPodName + "||||Pending||",
			} {
				f.add(now.Add(at*time.Millisecond), text)
			}
			f.mu.Unlock()
		}
		if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil || strings.Join(p.Observed().Doubts, "; ") != want {
			t.Errorf("%q, %v, want %q", p.Observed().Doubts, err, want)
		}
		if err := p.Clean(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A watch that receives pods long after their creation is a doubt.
func TestSlowWatch(t *testing.T) {
	for lag, want := range map[time.Duration]string{0: "", time.Second: "", 4 * time.Second: "cp-1: the watch received a pod 3"} {
		f := newFake(t)
		f.lag = lag
		p := f.player(Options{})
		if _, _, err := playertest.Play(t.Context(), p, []workload.Job{{ID: "a", Nodes: 1, Tasks: 1, CPUs: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Observed().Doubts, "; "); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%v late: %q, want %q", lag, got, want)
		}
	}
}

// All refused jobs fail, also if the messages are longer than the end of stderr in an error.
func TestManyRefused(t *testing.T) {
	f := newFake(t)
	var jobs []workload.Job
	for i := range maxObjects {
		id := fmt.Sprintf("job-%d", i)
		jobs = append(jobs, workload.Job{ID: id})
		if i > 0 {
			f.objects["Job/"+id] = map[string]any{"kind": "Job"}
		}
	}
	events, err := play(t, f, Options{}, jobs)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, e := range events {
		if e.Kind == player.Failed {
			failed++
		}
	}
	if failed != maxObjects-1 {
		t.Errorf("%d jobs failed", failed)
	}
}

// A Job that is neither created nor named by an error fails, and an error that concerns no job ends Play.
func TestAddCreation(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b"}, {ID: "gang", Gang: true, Nodes: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]string{
		"job.batch/a\njob.batch/b\npodgroup.scheduling.x-k8s.io/gang\njob.batch/gang\nexit status 0\n": "",
		"job.batch/a\nError: timeout\njob.batch/gang\nexit status 1\n":                                 "b: Error: timeout; ",
		"job.batch/a\njob.batch/gang\nexit status 0\n":                                                 "b: kubectl has not created the Job, and printed no error; ",
		"job.batch/a\njob.batch/b\njob.batch/gang\nError: podgroups \"gang\" exists\nexit status 1\n":  "gang: Error: podgroups \"gang\" exists; ",
		"job.batch/a\njob.batch/b\njob.batch/gang\nno matches for kind \"PodGroup\"\nexit status 1\n":  "kubernetes: create jobs: kubectl failed with exit status 1: no matches for kind \"PodGroup\"",
		"The connection was refused\nexit status 1\n":                                                  "kubernetes: create jobs: kubectl failed with exit status 1: The connection was refused",
		"job.batch/a\n": `kubernetes: create jobs: the output of kubectl is incomplete: "job.batch/a"`,
		"":              `kubernetes: create jobs: the output of kubectl is incomplete: ""`,
	} {
		got := ""
		tr := newTrial(jobs, time.Now())
		err := tr.addCreation(creation{jobs: jobs, arrays: objects{}.arrays(jobs), out: []byte(out)})
		for _, e := range tr.refused {
			got += e.Job + ": " + e.Text + "; "
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q\n got %s\nwant %s", out, got, want)
		}
	}
}

// The program prints what kubectl prints to stdout and stderr, and its exit status.
func TestCreateProgram(t *testing.T) {
	out, err := exec.Command("sh", "-c", createProgram, "sh", "sh", "-c", "echo job.batch/a; echo error >&2; exit 3").Output()
	if got := string(out); err != nil || got != "job.batch/a\nerror\nexit status 3\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// Tasks can be placed on workers beside a tainted control plane, also more tasks than nodes, and with a worker without room.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		nodes, tasks int
		room         []int // by worker
	}{{2, 2, []int{9, 9}}, {2, 5, []int{9, 9}}, {2, 4, []int{9, 9, 0}}, {3, 7, []int{9, 9, 9, 9}}, {2, 3, []int{2, 1}}} {
		s := spread(workload.Job{ID: "a", Nodes: c.nodes, Tasks: c.tasks})
		if s["nodeTaintsPolicy"] != "Honor" || s["whenUnsatisfiable"] != "DoNotSchedule" {
			t.Errorf("%v", s)
		}
		placed := make([]int, len(c.room))
		for range c.tasks { // the worst scheduler takes the first node that the constraint allows
			least := slices.Min(placed)
			for i := range placed {
				if placed[i] < c.room[i] && placed[i]+1-least <= s["maxSkew"].(int) {
					placed[i]++
					break
				}
			}
		}
		total, used := 0, 0
		for _, n := range placed {
			total, used = total+n, used+min(n, 1)
		}
		if total != c.tasks || used < c.nodes {
			t.Errorf("%d tasks on %d nodes with room %v: %v", c.tasks, c.nodes, c.room, placed)
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
		"no clock":            {"date", 1, 1, "", lost, "read the clock: connection lost"},
		"no namespace":        {"kubectl", 1, 1, "", lost, "create the namespace"},
		"no image":            {"kubectl", 3, 3, "", lost, "pull the image localhost/sleep:1: connection lost"},
		"no first pod":        {"kubectl", 6, 6, "", lost, "create a pod: connection lost"},
		"no job":              {"kubectl", 7, 7, "", lost, "create jobs: connection lost"},
		"no watch":            {"sh", 1, 1, "", lost, "start the watch"},
		"a failed read":       {"tail", 2, 4, "", lost, ""},
		"no file":             {"tail", 2, 1000, "", lost, "read the watch: connection lost"},
		"a line with garbage": {"tail", 2, 1000, "garbage\n", nil, "unexpected line"},
		"a line with no time": {"tail", 2, 1000, "now|ADDED|a|a||||||\n", nil, "without a time"},
		"an ended watch":      {"tail", 2, 1000, "1.5", nil, "nixbench-bench-watch.service has ended: it printed no error"},
	} {
		f := newFake(t)
		f.answer[test.program] = func(n int) (string, error) {
			if n >= test.from && n <= test.to {
				return test.out, test.err
			}
			return "", nil
		}
		if name == "an ended watch" {
			f.ended = true
		}
		_, err := play(t, f, Options{}, []workload.Job{{ID: "a", Runtime: 0.1}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if f.watching && test.program != "sh" {
			t.Errorf("%s: the watch still runs", name)
		}
	}
	for _, j := range []workload.Job{{ID: "a", Queue: "main"}, {ID: "a", User: "eve"}} {
		f := newFake(t)
		if _, err := play(t, f, Options{}, []workload.Job{j}); err == nil || !strings.Contains(err.Error(), "job a ") || len(f.calls) > 0 {
			t.Errorf("%+v: %v after %q", j, err, f.calls)
		}
	}
	if err := New(engine.Cluster{}, "", Options{}).Play(t.Context(), []workload.Job{{ID: "a"}}, time.Now, func(player.Event) {}); err == nil {
		t.Error("a cluster without nodes is accepted")
	}
}

func TestParseChange(t *testing.T) {
	got, err := parseChange([]byte("1700000000.000123|MODIFIED|a-0-x7|a|4|worker-1|Failed|137|Evicted|2023-11-14T22:13:19Z"))
	want := change{at: time.Unix(1700000000, 123000), pod: "a-0-x7", job: "a", task: 5, node: "worker-1", phase: "Failed", text: "Evicted", created: time.Date(2023, 11, 14, 22, 13, 19, 0, time.UTC)}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, line := range []string{"", "1.000000|ADDED", "1.0|ADDED|p|a|0|||0||", "x.000000|ADDED|p|a|0|||0||",
		"1.000000|ADDED|p|a|-1|||0||", "1.000000|ADDED|p|a|x|||0||", "1.000000|ADDED|p|a|0|||0||now"} {
		if got, err := parseChange([]byte(line)); err == nil {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// The scripts are valid, and the program adds a time to each line.
func TestScripts(t *testing.T) {
	argv := []string{"printf", `%s\n`, "ADDED|it's|a|0|||0||"}
	for shell, text := range map[string]string{"sh": startScript(argv), "bash": watchProgram(argv), "dash": watchUnit.StopScript()} {
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%v: %s", err, out)
		}
	}
	out, err := exec.Command("bash", "-c", strings.Replace(watchProgram(argv), "sleep 0.1", "exit", 1)).Output()
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
	if end, err := parseChange([]byte(second)); err != nil || !end.ended {
		t.Errorf("after a watch that has ended: %q, %v", second, err)
	}
	c, err := parseChange([]byte(first))
	if err != nil || c.ended || c.pod != "it's" || time.Since(c.at).Abs() > time.Minute {
		t.Errorf("%q: %+v, %v", out, c, err)
	}
}

func TestUsage(t *testing.T) {
	got, err := newFake(t).player(Options{}).Usage(t.Context())
	if diff := cmp.Diff(map[string]player.Usage{"etcd": {CPU: 6, Memory: 6 << 20}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestLimits(t *testing.T) {
	f := newFake(t)
	read := func(o Options) map[string]player.Limit {
		limits, err := f.player(o).Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]player.Limit{}
		for _, l := range limits {
			got[l.Name] = l
		}
		return got
	}
	got := read(Options{})
	for name, want := range map[string]player.Limit{
		"kube-scheduler: kube-api-qps":                   {Value: "200", Rate: 200, Kind: player.Bound},
		"kube-scheduler: kube-api-burst":                 {Value: "100 (default)"},
		"kube-controller-manager: kube-api-qps":          {Value: "20 (default)", Rate: 20, Kind: player.Created},
		"kube-controller-manager: concurrent-job-syncs":  {Value: "5 (default)"},
		"kubelet: maxPods":                               {Value: "110 per node"},
		"kube-scheduler: parallelism":                    {Value: "16 (default)"},
		"kube-apiserver: max-requests-inflight":          {Value: "800"},
		"kube-apiserver: max-mutating-requests-inflight": {Value: "200 (default)"},
	} {
		if want.Name = name; got[name] != want {
			t.Errorf("%+v, want %+v", got[name], want)
		}
	}
	f.files[manifests+"/kube-scheduler.yaml"] += "    - --config=/etc/kubernetes/scheduler.yaml\n"
	for text, want := range map[string]player.Limit{
		"clientConnection:\n  qps: 300\n": {Value: "300", Rate: 300, Kind: player.Bound},
		`{"clientConnection":{"qps":-1}}`: {Value: "-1"},
		"kind: X\n":                       {Value: "50 (default)", Rate: 50, Kind: player.Bound},
	} {
		f.files["/etc/kubernetes/scheduler.yaml"] = text
		want.Name = "kube-scheduler: clientConnection.qps"
		if got := read(Options{}); got[want.Name] != want || got["kube-scheduler: kube-api-qps"].Name != "" {
			t.Errorf("%s: %+v", text, got)
		}
	}
	f.files["/etc/kubernetes/scheduler.yaml"] = "clientConnection:\n  burst: 7\n  qps: 300\nparallelism: 32\n"
	if got := read(Options{}); got["kube-scheduler: clientConnection.burst"].Value != "7" || got["kube-scheduler: parallelism"].Value != "32" {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]player.Limit{
		`{"clientConnection":{"burst":7,"qps":300}}`: {Name: "gangs: clientConnection.qps", Value: "300", Rate: 300, Kind: player.Bound},
		"": {}, // a scheduler that nixbench does not know
	} {
		f.schedulerConfig = text
		if got := read(Options{Scheduler: "gangs"}); got["gangs: clientConnection.qps"] != want || got["kube-scheduler: config"].Name != "" {
			t.Errorf("%s: %+v", text, got)
		}
	}
	delete(f.files, manifests+"/kube-controller-manager.yaml")
	if _, err := f.player(Options{}).Limits(t.Context()); err == nil {
		t.Error("no manifest, and no error")
	}
}

// A gang has a PodGroup, and pods on several nodes are spread.
func TestObjects(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "gang", Nodes: 2, Tasks: 4, CPUs: 3, Memory: 64, Runtime: 1.5, Gang: true}, {ID: "single", Gang: true}})
	if err != nil {
		t.Fatal(err)
	}
	for gangs, want := range map[string][]string{
		"":           {`"kind":"Job"`, `"completions":4`, `"parallelism":4`, `"completionMode":"Indexed"`, `"cpu":"3"`, `"memory":"64Mi"`, `\nsleep 1.5\n`, `"maxSkew":2`, `"nodeTaintsPolicy":"Honor"`, `"schedulerName":"s"`},
		Coscheduling: {`"apiVersion":"scheduling.x-k8s.io/v1alpha1"`, `"minMember":4`, `"scheduling.x-k8s.io/pod-group":"gang"`},
		Volcano:      {`"apiVersion":"scheduling.volcano.sh/v1beta1"`, `"minMember":4`, `"scheduling.k8s.io/group-name":"gang"`, `"schedulerName":"volcano"`},
	} {
		list, err := newFake(t).player(Options{Gangs: gangs, Scheduler: map[string]string{"": "s", Coscheduling: "gangs"}[gangs]}).objects.jobList(jobs)
		if err != nil || !json.Valid(list) {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(list), w) {
				t.Errorf("%q: %s is not in %s", gangs, w, list)
			}
		}
		wantGroups := 1
		if gangs == "" {
			wantGroups = 0
		}
		if groups := strings.Count(string(list), `"kind":"PodGroup"`); groups != wantGroups {
			t.Errorf("%q: %d groups", gangs, groups)
		}
	}
}
