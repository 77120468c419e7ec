package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/null"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

// benchmark returns a benchmark with two configurations and two workloads.
func benchmark() Benchmark {
	b := Benchmark{
		Factors: map[string][]string{"roles.w.count": {"2", "4"}, "workload": {"a", "b"}}, Repetitions: 3, Warmup: 1, Seed: 7, Retries: 2, Reset: Fresh, Order: "blocks",
		Workloads: map[string]WorkloadOptions{},
	}
	for _, name := range b.Factors["workload"] {
		b.Workloads[name] = WorkloadOptions{Jobs: []json.RawMessage{[]byte(`{"id":"x"}`), []byte(`{"id":"y"}`)}, TimeLimit: 1}
		for _, count := range b.Factors["roles.w.count"] {
			b.Cells = append(b.Cells, map[string]string{"roles.w.count": count, "workload": name})
		}
	}
	return b
}

// fakeCluster is a cluster without machines. Its player is the null player.
type fakeCluster struct {
	removed, deployed int
	systems           map[string]string
	fail              func(deployment int) error
	player            func(WorkloadOptions, bool) (player.Player, error) // nil: the null player
	command           []string
	hollow            int
}

func (c *fakeCluster) Remove(context.Context, io.Writer) error { c.removed++; return nil }

func (c *fakeCluster) Deploy(_ context.Context, _ Configuration, log io.Writer) (*Running, error) {
	c.deployed++
	fmt.Fprintln(log, "deployed")
	if c.fail != nil {
		if err := c.fail(c.deployed); err != nil {
			return nil, err
		}
	}
	newPlayer := c.player
	if newPlayer == nil {
		newPlayer = func(WorkloadOptions, bool) (player.Player, error) { return null.New(0), nil }
	}
	return &Running{Systems: c.systems, Nodes: 2, CPUs: 4, Hollow: c.hollow, Command: c.command, Close: func() {}, Player: newPlayer}, nil
}

// newRunner returns a runner of a new sweep, whose machine is quiet.
func newRunner(t *testing.T, b Benchmark, c *fakeCluster) *Runner {
	t.Helper()
	s := Sweep{ID: "x", Name: "x", Benchmark: b, Source: "hive.nix"}
	s.Configurations, s.Trials = Plan(b)
	for i := range s.Configurations {
		s.Configurations[i].Systems = map[string]System{"w-1": {Path: "/nix/store/s"}}
	}
	c.systems = map[string]string{"w-1": "/nix/store/s"}
	jobs := map[string][]workload.Job{}
	for name, w := range b.Workloads {
		list, err := MakeJobs(name, w, b.Seed)
		if err != nil {
			t.Fatal(err)
		}
		jobs[name] = list
	}
	st, err := Create(t.TempDir(), s, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{Store: st, Cluster: c, Observe: func(context.Context, Trial, *Running) func() (noise.Verdict, *noise.Report) {
		return func() (noise.Verdict, *noise.Report) { return noise.Verdict{State: Valid}, nil }
	}}
}

// firstResult returns the attempt of a trial whose result is used, or nil if there is none yet.
func firstResult(st *Store, number int) (*Attempt, error) {
	all, err := st.Attempts(number)
	i := slices.IndexFunc(all, Attempt.Counts)
	if err != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}

func TestPlan(t *testing.T) {
	b := benchmark()
	configurations, trials := Plan(b)
	if len(configurations) != 2 || len(trials) != 16 {
		t.Fatalf("%d configurations and %d trials", len(configurations), len(trials))
	}
	perBlock := map[int]map[string]int{}
	for i, tr := range trials {
		if tr.Number != i+1 {
			t.Errorf("trial %d has the number %d", i+1, tr.Number)
		}
		if perBlock[tr.Block] == nil {
			perBlock[tr.Block] = map[string]int{}
		}
		perBlock[tr.Block][tr.String()]++
		// Workloads of a configuration follow each other.
		if i%2 == 1 && (trials[i-1].Configuration != tr.Configuration || trials[i-1].Cell["workload"] == tr.Cell["workload"]) {
			t.Errorf("trials %d and %d: %s, %s", i, i+1, trials[i-1], tr)
		}
	}
	for block := range 4 {
		if len(perBlock[block]) != 4 {
			t.Errorf("block %d has the cells %v", block, perBlock[block])
		}
	}
	if _, again := Plan(b); !cmp.Equal(trials, again) {
		t.Error("the same seed gives another order")
	}
	orders := map[string]bool{}
	for b.Seed = range 20 {
		_, trials := Plan(b)
		orders[fmt.Sprint(trials)] = true
	}
	if len(orders) < 15 {
		t.Errorf("20 seeds give %d orders", len(orders))
	}
	b.Order = Cheap
	_, trials = Plan(b)
	changes := 0
	for i := range trials[1:] {
		if trials[i].Configuration != trials[i+1].Configuration {
			changes++
		}
	}
	if len(trials) != 16 || changes != 1 {
		t.Errorf("order cheap: %d trials, %d changes of the configuration", len(trials), changes)
	}
}

// Levels that are modules are part of the configuration, but no arguments of --set.
func TestModuleLevels(t *testing.T) {
	b := benchmark()
	b.Factors["qps"], b.Modules = []string{"low"}, map[string]string{"qps": "x"}
	for _, c := range b.Cells {
		c["qps"] = "low"
	}
	configurations, _ := Plan(b)
	if len(configurations) != 2 {
		t.Fatalf("%+v", configurations)
	}
	c := configurations[0]
	if diff := cmp.Diff([]Level{{Benchmark: "x", Factor: "qps", Level: "low"}}, c.Modules); diff != "" || !slices.Equal(c.SetArguments(), []string{"roles.w.count=2"}) {
		t.Errorf("%s%v", diff, c.SetArguments())
	}
	other := c
	other.Levels = map[string]string{"roles.w.count": "2", "qps": "high"}
	if c.FactsFile() == other.FactsFile() {
		t.Error("configurations with other modules have the same facts")
	}
	for factor, valid := range map[string]bool{"qps": true, "roles.w.count": false, "scheduler": false, "workload": false, "repeat": false, "limits": false, "a b": false} {
		b := Benchmark{Factors: map[string][]string{factor: {"low"}}, Modules: map[string]string{factor: "x"}}
		if err := Check("x", b); (err == nil) != valid {
			t.Errorf("the factor %s: %v", factor, err)
		}
	}
	for level, valid := range map[string]bool{Default: true, Tuned: true, "high": false} {
		if err := Check("x", Benchmark{Factors: map[string][]string{LimitsFactor: {level}}}); (err == nil) != valid {
			t.Errorf("limits=%s: %v", level, err)
		}
	}
	for level, valid := range map[string]bool{SingleSubmission: true, ArraySubmission: true, "bulk": false} {
		if err := Check("x", Benchmark{Factors: map[string][]string{SubmissionFactor: {level}}}); (err == nil) != valid {
			t.Errorf("submission=%s: %v", level, err)
		}
	}
}

// What the level tuned has changed is what the running schedulers report.
func TestDescribeTuning(t *testing.T) {
	b := benchmark()
	b.Repetitions, b.Cells = 1, nil
	for _, limits := range []string{Default, Tuned} {
		b.Cells = append(b.Cells, map[string]string{LimitsFactor: limits, "scheduler": "slurm", "workload": "a"})
	}
	var s Sweep
	s.Configurations, s.Trials = Plan(b)
	attempts := map[int][]Attempt{}
	for _, tr := range s.Trials {
		delay := map[string]string{Default: "3 (default)", Tuned: "0"}[tr.Cell[LimitsFactor]]
		attempts[tr.Number] = []Attempt{{State: Valid, Limits: []player.Limit{{Name: "batch_sched_delay", Value: delay}, {Name: "defer", Value: "set"}, {Name: "other", Value: "1 (default)"}}}}
	}
	every := func(map[string]string) bool { return true }
	if got := s.DescribeTuning(attempts, func(map[string]string) bool { return false }); got != nil {
		t.Errorf("no cell: %q", got)
	}
	if got := s.DescribeTuning(attempts, every); !slices.Equal(got, []string{"slurm with limits=tuned: batch_sched_delay is 0 instead of 3 (default)."}) {
		t.Errorf("%q", got)
	}
	b.Cells = b.Cells[1:]
	s.Configurations, s.Trials = Plan(b)
	attempts[1][0].Limits[0].Value = "0"
	if got := s.DescribeTuning(attempts, every); !slices.Equal(got, []string{"slurm with limits=tuned: batch_sched_delay is 0; defer is set."}) {
		t.Errorf("without the level default: %q", got)
	}
}

// readEvents reads the events of an attempt.
func readEvents(st *Store, a Attempt) (out []player.Event, err error) {
	f, err := os.Open(filepath.Join(st.attemptFolder(a.Trial, a.Number), "events.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var e player.Event
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func TestRun(t *testing.T) {
	c := &fakeCluster{}
	r := newRunner(t, benchmark(), c)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := r.Store.ReadProgress()
	if err != nil || p.Done != 16 || p.States[Valid] != 16 || c.deployed != 16 || c.removed != 16 {
		t.Errorf("%+v, %d deployments, %d removals, %v", p, c.deployed, c.removed, err)
	}
	a, err := firstResult(r.Store, 1)
	if err != nil || a == nil || a.Result.Finished != 2 || !a.Result.Complete || a.Result.Metrics["throughput"] == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	events, err := readEvents(r.Store, *a)
	if err != nil || len(events) < 8 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if err := r.Run(t.Context()); err != nil || c.deployed != 16 {
		t.Errorf("a second run has deployed %d times, %v", c.deployed-16, err)
	}
}

// An extended sweep keeps its trials, records that its results were read, and has at most the declared number of blocks.
func TestExtend(t *testing.T) {
	b := benchmark()
	b.MaxBlocks = 6
	c := &fakeCluster{}
	r := newRunner(t, b, c)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(r.Store.Sweep.Trials)
	if err := r.Store.Extend(7); err == nil || !strings.Contains(err.Error(), "at most 6 blocks") {
		t.Error(err)
	}
	for _, blocks := range []int{4, 6} {
		if err := r.Store.Extend(blocks); err != nil {
			t.Fatal(err)
		}
	}
	st, err := Open(r.Store.Folder)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, st.Sweep.Trials[:len(before)]); diff != "" || len(st.Sweep.Trials) != 4*7 || !slices.Equal(st.Sweep.Looks, []int{3, 4}) {
		t.Errorf("%s%d trials, looks %v", diff, len(st.Sweep.Trials), st.Sweep.Looks)
	}
	if err := r.Run(t.Context()); err != nil || c.deployed != 4*7 {
		t.Errorf("%d deployments, %v", c.deployed, err)
	}
}

// A sweep that is interrupted several times has the same trials in the end, and no attempt that was interrupted counts.
func TestInterrupted(t *testing.T) {
	c := &fakeCluster{}
	r := newRunner(t, benchmark(), c)
	var order []int
	r.End = func(t Trial, _ Attempt) { order = append(order, t.Number) }
	for i := range 5 {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		c.fail = func(n int) error {
			if n%(3+i) == 0 {
				cancel(stop)
				return context.Canceled
			}
			return nil
		}
		if err := r.Run(ctx); err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
		cancel(nil)
		st, err := Open(r.Store.Folder)
		if err != nil {
			t.Fatal(err)
		}
		r.Store = st
	}
	c.fail = nil
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range order {
		if n != i+1 {
			t.Fatalf("the order of the results is %v", order)
		}
	}
	if p, err := r.Store.ReadProgress(); err != nil || p.Done != 16 || p.States[Failed] != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// A trial that was disturbed is repeated at the end of its block, and a trial that always fails does not stop the sweep.
func TestRepeated(t *testing.T) {
	c := &fakeCluster{}
	r := newRunner(t, benchmark(), c)
	observed := 0
	r.Observe = func(context.Context, Trial, *Running) func() (noise.Verdict, *noise.Report) {
		observed++
		state := Valid
		if observed == 2 {
			state = Invalid
		}
		return func() (noise.Verdict, *noise.Report) {
			return noise.Verdict{State: state, Reasons: []string{"a reason"}}, nil
		}
	}
	var order []int
	r.End = func(t Trial, _ Attempt) { order = append(order, t.Number) }
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 2, 5}, order[:6]); diff != "" {
		t.Error(diff)
	}
	if a, err := r.Store.Attempts(2); err != nil || len(a) != 2 || a[0].State != Invalid || a[1].State != Valid {
		t.Errorf("%+v, %v", a, err)
	}

	c = &fakeCluster{fail: func(int) error { return errors.New("no space") }}
	r = newRunner(t, benchmark(), c)
	if err := r.Run(t.Context()); err != nil || c.deployed != 16*3 {
		t.Errorf("%d deployments, %v", c.deployed, err)
	}
	if a, _ := r.Store.Attempts(1); len(a) != 3 || !slices.Contains(a[2].Reasons, "deploy: no space") {
		t.Errorf("%+v", a)
	}
}

// breakingPlayer breaks in two of three attempts after it has begun the workload.
type breakingPlayer struct {
	player.Player
	plays *int
}

func (p breakingPlayer) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if *p.plays++; *p.plays%3 == 0 {
		return p.Player.Play(ctx, jobs, begin, send)
	}
	start := begin()
	send(player.Event{Time: start, Kind: player.Finish, Job: "x"})
	return errors.New("the scheduler does not answer")
}

// A scheduler that breaks under load is a result. It is not repeated until it does not break, also if something else disturbed the trial.
func TestBroken(t *testing.T) {
	b := benchmark()
	b.Warmup = 0
	plays := 0
	r := newRunner(t, b, &fakeCluster{player: func(WorkloadOptions, bool) (player.Player, error) {
		return breakingPlayer{null.New(0), &plays}, nil
	}})
	r.Observe = func(context.Context, Trial, *Running) func() (noise.Verdict, *noise.Report) {
		state := map[bool]string{false: Valid, true: Invalid}[plays == 1]
		return func() (noise.Verdict, *noise.Report) { return noise.Verdict{State: state}, nil }
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := r.Store.ReadProgress()
	if err != nil || plays != 12 || p.Done != 12 || p.States[Valid] != 4 || p.States[Suspect] != 8 {
		t.Fatalf("%d attempts: %+v, %v", plays, p, err)
	}
	all, err := r.Store.AllAttempts()
	if err != nil {
		t.Fatal(err)
	}
	complete := 0
	for _, a := range all {
		switch m := a[0].Result.Metrics; {
		case a[0].Result.Complete:
			complete++
		case m["makespan"] != 0 || m["throughput"] > 1 || !strings.HasPrefix(a[0].Reasons[0], "the workload broke off, and 1 of 2 jobs finished: play: the scheduler does not answer"):
			t.Errorf("%+v", a[0])
		}
	}
	if complete != 4 {
		t.Errorf("%d of 12 trials are complete", complete)
	}
}

// The systems that run must be those that were built before the first trial.
func TestOtherSystems(t *testing.T) {
	c := &fakeCluster{}
	r := newRunner(t, benchmark(), c)
	c.systems = map[string]string{"w-1": "/nix/store/other"}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := r.Store.Attempts(1)
	if err != nil || a[0].State != Failed || !strings.Contains(a[0].Reasons[0], "w-1 runs /nix/store/other, and the sweep has frozen /nix/store/s: a file that is not in the sweep's copy") {
		t.Errorf("%+v, %v", a, err)
	}
}

// A workload that does not end is a result, with the jobs that have finished.
func TestTimeLimit(t *testing.T) {
	b := benchmark()
	b.Repetitions, b.Warmup = 1, 0
	w := b.Workloads["a"]
	w.Jobs, w.TimeLimit = []json.RawMessage{[]byte(`{"id":"x"}`), []byte(`{"id":"y","runtime":3600}`)}, 0.2
	b.Workloads["a"] = w
	r := newRunner(t, b, &fakeCluster{})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tr := range r.Store.Sweep.Trials {
		a, err := firstResult(r.Store, tr.Number)
		if err != nil || a == nil {
			t.Fatalf("%s: %v", tr, err)
		}
		_, makespan := a.Result.Metrics["makespan"]
		if late := tr.Cell["workload"] == "a"; a.Result.Complete == late || makespan == late || late && (a.Result.Finished != 1 || !strings.Contains(a.Reasons[0], "1 of 2 jobs finished in 200ms")) {
			t.Errorf("%s: %+v", tr, a)
		}
	}
}

// exactPlayer places 50 jobs per second, which is its limit.
type exactPlayer struct{ player.Player }

func (exactPlayer) Limits(context.Context) ([]player.Limit, error) {
	return []player.Limit{{Name: "null: rate", Value: "50", Rate: 50, Kind: player.Bound}}, nil
}

func (exactPlayer) Play(_ context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	start := begin()
	for i, j := range jobs {
		for _, kind := range []string{player.Submit, player.Created, player.Bound, player.Start, player.Last, player.Finish} {
			at := start
			if kind != player.Submit {
				at = start.Add(time.Duration(i) * time.Second / 50)
			}
			send(player.Event{Time: at, Kind: kind, Job: j.ID})
		}
	}
	return nil
}

// A rate at the limit of the scheduler is labelled with it.
func TestLimited(t *testing.T) {
	b := benchmark()
	b.Repetitions, b.Warmup = 1, 0
	w := WorkloadOptions{TimeLimit: 10}
	for i := range 100 {
		w.Jobs = append(w.Jobs, []byte(fmt.Sprintf(`{"id":"j%d"}`, i)))
	}
	b.Workloads, b.Cells = map[string]WorkloadOptions{"a": w}, b.Cells[:1]
	cluster := &fakeCluster{player: func(WorkloadOptions, bool) (player.Player, error) { return exactPlayer{null.New(0)}, nil }}
	r := newRunner(t, b, cluster)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := firstResult(r.Store, 1)
	if err != nil || a == nil {
		t.Fatal(err)
	}
	if rate := a.Result.Metrics["bind_rate"]; rate < 49 || rate > 51 || !slices.Equal(a.Limited, []string{"null: rate"}) {
		t.Errorf("rate %v, limited by %v", rate, a.Limited)
	}
}

// Random times of submission are the same for all cells of a block, and other ones in each block.
func TestDrawnPerBlock(t *testing.T) {
	b := benchmark()
	for name, w := range b.Workloads {
		w.Arrival = Arrival{Rate: 10, Poisson: true}
		w.Jobs = append(w.Jobs, []byte(`{"id":"fixed","submit":5}`))
		b.Workloads[name] = w
	}
	r := newRunner(t, b, &fakeCluster{})
	blocks := map[int]string{}
	for _, tr := range r.Store.Sweep.Trials {
		jobs, err := r.Store.ReadTrialJobs(tr)
		if err != nil || len(jobs) != 3 || jobs[2].Submit != 5 || jobs[0].Submit != 0 || jobs[1].Submit <= 0 {
			t.Fatalf("%+v, %v", jobs, err)
		}
		times := fmt.Sprint(jobs[1].Submit)
		if blocks[tr.Block] != "" && blocks[tr.Block] != times {
			t.Errorf("block %d has the times %s and %s", tr.Block, times, blocks[tr.Block])
		}
		blocks[tr.Block] = times
	}
	seen := map[string]bool{}
	for _, times := range blocks {
		seen[times] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d blocks have %d different times", len(blocks), len(seen))
	}
}

// limitedPlayer is a null player with a delay of each start, or one that submits slowly.
type limitedPlayer struct {
	player.Player
	capacity float64
	events   func([]workload.Job, time.Time) []player.Event
}

func (p limitedPlayer) Observed() player.Observations {
	return player.Observations{Capacity: p.capacity}
}

func (p limitedPlayer) Play(_ context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	for _, e := range p.events(jobs, begin()) {
		send(e)
	}
	return nil
}

// What limits a trial is named: places for tasks that are full, a client that submits late, kwok, and a player that could not submit much faster.
func TestLimitedByOthers(t *testing.T) {
	b := benchmark()
	b.Repetitions, b.Warmup, b.Cells = 1, 0, b.Cells[:1]
	w := WorkloadOptions{TimeLimit: 100}
	for i := range 40 {
		w.Jobs = append(w.Jobs, []byte(fmt.Sprintf(`{"id":"j%d"}`, i)))
	}
	b.Workloads = map[string]WorkloadOptions{"a": w}
	// Job i is submitted at i*late, placed at i*every, launched after launch, and ends after 1 s.
	play := func(late, every, launch float64) func([]workload.Job, time.Time) []player.Event {
		return func(jobs []workload.Job, start time.Time) (events []player.Event) {
			for i, j := range jobs {
				for kind, at := range map[string]float64{player.Submit: float64(i) * late, player.Bound: float64(i) * every,
					player.Launched: float64(i)*every + launch, player.Finish: float64(i)*every + 1} {
					events = append(events, player.Event{Job: j.ID, Kind: kind, Time: start.Add(workload.Seconds(at))})
				}
			}
			return events
		}
	}
	for want, test := range map[string]struct {
		player limitedPlayer
		hollow int
		doubts int
	}{
		"":           {limitedPlayer{events: play(0, 1, 0), capacity: 10}, 0, 0},
		"places":     {limitedPlayer{events: play(0, 0.25, 0)}, 0, 0}, // four processors
		"the client": {limitedPlayer{events: play(0.5, 0.5, 0), capacity: 2.5}, 0, 2},
		"kwok":       {limitedPlayer{events: play(0, 1, 2)}, 8, 0},
	} {
		c := &fakeCluster{hollow: test.hollow, player: func(WorkloadOptions, bool) (player.Player, error) {
			test.player.Player = null.New(0)
			return test.player, nil
		}}
		r := newRunner(t, b, c)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := firstResult(r.Store, 1)
		if err != nil || strings.Join(a.Limited, " ") != want || len(a.Reasons) != test.doubts {
			t.Errorf("%q: limited by %q, %q, %v, %v", want, a.Limited, a.Reasons, a.Result.Metrics, err)
		}
	}
}

// The copy has what git would commit, without ignored files, and what the hive's folder has outside of git.
func TestCopySource(t *testing.T) {
	from := t.TempDir()
	for name, text := range map[string]string{"hive.nix": "{ }", "sub/a.nix": "1", ".nixbench/x/state.json": "{ }"} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	to := t.TempDir()
	s, err := CopySource(t.Context(), from, to, false)
	if err != nil || s.Folder != "." {
		t.Fatal(s, err)
	}
	if _, err := os.Stat(filepath.Join(to, ".nixbench")); err == nil {
		t.Error("the state folder was copied")
	}
	if text, err := os.ReadFile(filepath.Join(to, "sub/a.nix")); err != nil || string(text) != "1" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub/a.nix"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if other, err := CopySource(t.Context(), from, t.TempDir(), false); err != nil || other.Hash == s.Hash {
		t.Errorf("a changed file gives the same hash, %v", err)
	}
}

// slowPlayer is a player whose setup takes some time, and which submits jobs late.
type slowPlayer struct {
	player.Player
	setup, late time.Duration
	never       bool   // it does not begin the workload
	ends        string // this job ends half a second after the others, also after the time limit
	doubts      []string
}

func (p slowPlayer) Observed() player.Observations { return player.Observations{Doubts: p.doubts} }

func (p slowPlayer) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	select {
	case <-time.After(p.setup):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.never {
		return nil
	}
	err := p.Player.Play(ctx, jobs, func() time.Time {
		start := begin()
		if again := begin(); again != start {
			return time.Time{}
		}
		time.Sleep(p.late)
		return start
	}, send)
	if p.ends != "" {
		time.Sleep(500 * time.Millisecond)
		send(player.Event{Time: time.Now(), Kind: player.Finish, Job: p.ends})
	}
	return err
}

// playOnce runs one trial with a time limit of 10 s, in simulated time.
func playOnce(t *testing.T, p slowPlayer, jobs ...string) (Attempt, error) {
	t.Helper()
	var a *attempt
	var err error
	synctest.Test(t, func(t *testing.T) {
		w := WorkloadOptions{TimeLimit: 10}
		for _, j := range jobs {
			w.Jobs = append(w.Jobs, []byte(j))
		}
		b := Benchmark{Factors: map[string][]string{"workload": {"a"}}, Repetitions: 1, Reset: Fresh, Order: "blocks",
			Workloads: map[string]WorkloadOptions{"a": w}, Cells: []map[string]string{{"workload": "a"}}}
		r := newRunner(t, b, &fakeCluster{})
		list, makeErr := MakeJobs("a", w, 1)
		if makeErr != nil {
			t.Fatal(makeErr)
		}
		p.Player = null.New(0)
		a = &attempt{Runner: r, trial: r.Store.Sweep.Trials[0], Attempt: Attempt{Phases: map[string]float64{}}}
		err = a.play(t.Context(), p, list, &Running{Nodes: 2, CPUs: 4})
	})
	return a.Attempt, err
}

// The setup of the player is no part of the workload, and has its own time limit.
func TestPrepare(t *testing.T) {
	a, err := playOnce(t, slowPlayer{setup: 30 * time.Second}, `{"id":"x","runtime":4}`)
	if err != nil || a.State != Valid || a.Result.Metrics["makespan"] != 4 || a.Phases["prepare"] != 30 || a.Phases["play"] != 4 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err = playOnce(t, slowPlayer{setup: time.Hour}, `{"id":"x"}`); err == nil || err.Error() != "prepare: the player's setup took longer than 2m0s" {
		t.Error(err)
	}
	if _, err = playOnce(t, slowPlayer{never: true}, `{"id":"x"}`); err == nil || err.Error() != "prepare: the player has not begun the workload" {
		t.Error(err)
	}
	a, err = playOnce(t, slowPlayer{setup: 30 * time.Second}, `{"id":"x"}`, `{"id":"y","runtime":60}`)
	if err != nil || a.Phases["play"] != 10 || !slices.Contains(a.Reasons, "1 of 2 jobs finished in 10s, the time limit") {
		t.Errorf("%+v, %v", a, err)
	}
	// A job that ends while the player stops has not finished within the time limit.
	a, err = playOnce(t, slowPlayer{ends: "y"}, `{"id":"x"}`, `{"id":"y","runtime":60}`)
	if err != nil || a.Result.Complete || !slices.Contains(a.Reasons, "1 of 2 jobs finished in 10s, the time limit") {
		t.Errorf("%+v, %v", a, err)
	}
}

// A trial of which the player has doubts is suspect.
func TestDoubts(t *testing.T) {
	a, err := playOnce(t, slowPlayer{doubts: []string{"the clock drifted"}}, `{"id":"x"}`)
	if err != nil || a.State != Suspect || !slices.Equal(a.Reasons, []string{"the clock drifted"}) {
		t.Errorf("%+v, %v", a, err)
	}
}

// A trial whose jobs were submitted late is suspect.
func TestLateness(t *testing.T) {
	for _, c := range []struct {
		late    time.Duration
		runtime int
		want    string
	}{
		{900 * time.Millisecond, 0, Valid}, {1500 * time.Millisecond, 5, Suspect}, {1500 * time.Millisecond, 60, Suspect}, // the last one does not finish
	} {
		a, err := playOnce(t, slowPlayer{late: c.late}, fmt.Sprintf(`{"id":"x","runtime":%d}`, c.runtime))
		if err != nil || a.State != c.want || (c.want == Suspect) != (len(a.Reasons) > 0 && strings.HasPrefix(a.Reasons[0], "jobs were submitted up to 1.5 s late")) {
			t.Errorf("%v late: %s %q, %v", c.late, a.State, a.Reasons, err)
		}
	}
	a := attempt{Attempt: Attempt{Result: trial.Result{Metrics: map[string]float64{"submit_error_max": 2.3, "makespan": 500}}}}
	if got := a.lateness(); got != nil {
		t.Errorf("less than 1 %% of the makespan: %q", got)
	}
}

// busyPlayer is a player whose setup and removal of jobs use the scheduler, too.
type busyPlayer struct {
	player.Player
	log      *[]string
	cpu      float64
	usageErr error
}

func (p *busyPlayer) use(what string, cpu float64) {
	*p.log = append(*p.log, what)
	p.cpu += cpu
}

func (p *busyPlayer) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	p.use("setup", 100)
	return p.Player.Play(ctx, jobs, func() time.Time {
		defer p.use("play", 7)
		return begin()
	}, send)
}

func (p *busyPlayer) Clean(context.Context) error {
	p.use("clean", 1000)
	return nil
}

func (p *busyPlayer) Usage(context.Context) (map[string]player.Usage, error) {
	return map[string]player.Usage{"scheduler": {CPU: p.cpu}}, p.usageErr
}

func (p *busyPlayer) Observed() player.Observations {
	return player.Observations{Clocks: &player.Clocks{
		Before: player.Clock{Offset: 2 * time.Second, Error: time.Millisecond}, After: player.Clock{Offset: 1500 * time.Millisecond, Error: 3 * time.Millisecond},
	}}
}

// The usage and the noise of a trial contain neither the player's setup nor the removal of unfinished jobs.
func TestMeasuredTime(t *testing.T) {
	for name, c := range map[string]struct {
		jobs []workload.Job
		want []string
	}{
		"complete":   {[]workload.Job{{ID: "x", Nodes: 1, Tasks: 1, CPUs: 1}}, []string{"setup", "observe", "play", "judge"}},
		"incomplete": {[]workload.Job{{ID: "x", Nodes: 1, Tasks: 1, CPUs: 1, Runtime: 60}}, []string{"setup", "observe", "play", "clean", "judge"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := benchmark()
			for name, w := range b.Workloads {
				w.TimeLimit = 10
				b.Workloads[name] = w
			}
			r := newRunner(t, b, &fakeCluster{})
			var log []string
			r.Observe = func(context.Context, Trial, *Running) func() (noise.Verdict, *noise.Report) {
				log = append(log, "observe")
				return func() (noise.Verdict, *noise.Report) {
					log = append(log, "judge")
					return noise.Verdict{State: Valid}, nil
				}
			}
			a := &attempt{Runner: r, trial: r.Store.Sweep.Trials[0], Attempt: Attempt{Phases: map[string]float64{}}}
			if err := a.play(t.Context(), &busyPlayer{Player: null.New(0), log: &log}, c.jobs, &Running{}); err != nil {
				t.Fatal(name, err)
			}
			if diff := cmp.Diff(c.want, log); diff != "" || a.Usage["scheduler"].CPU != 7 || a.Result.Metrics["scheduler_cpu"] != 7 {
				t.Errorf("%s: %+v %s", name, a.Usage, diff)
			}
			if want := (Clock{Offset: 2, Drift: -0.5, Error: 0.003}); a.Clock == nil || *a.Clock != want || a.Result.Metrics["clock_error"] != 0.003 {
				t.Errorf("%s: %+v", name, a.Clock)
			}
			a = &attempt{Runner: r, trial: r.Store.Sweep.Trials[0], Attempt: Attempt{Phases: map[string]float64{}}}
			err := a.play(t.Context(), &busyPlayer{Player: null.New(0), log: &log, usageErr: errors.New("no answer")}, c.jobs, &Running{})
			if err == nil || err.Error() != "prepare: the usage of the scheduler: no answer" {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
