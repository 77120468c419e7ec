package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

// Cluster deploys the configurations of a sweep.
type Cluster interface {
	// Deploy creates the cluster of a configuration, or changes the existing cluster. It writes messages about its progress to log.
	Deploy(ctx context.Context, c Configuration, log io.Writer) (*Running, error)
	// Remove removes all machines of the cluster, if there are any. The next Deploy creates machines with the same addresses and keys.
	Remove(ctx context.Context, log io.Writer) error
}

// Running is a deployed cluster.
type Running struct {
	Systems map[string]string // store paths by node
	Nodes   int               // nodes that run jobs
	Hollow  int               // number of hollow nodes among them: one machine stands for several hollow nodes
	CPUs    int               // processors of these nodes
	Command []string          // the command line of nixbench for this cluster, without a command, for programs of workloads
	Doubts  []string          // reasons why all results of this cluster are suspect, and never valid
	// Processes identifies the processes of the machines by node: by the process id of a container, or an argument of QEMU.
	Processes map[string]string
	// States returns the states of the machines by node, as their hypervisors report them. A machine that is not running makes a trial
	// invalid.
	States func(context.Context) (map[string]string, error)
	Player func(w WorkloadOptions, arrays bool) (player.Player, error) // with arrays, it submits equal jobs as one request
	Close  func()
}

// Texts in Running.Doubts that are also notes in the results of a sweep.
const (
	EmulatedDoubt     = "the machines are emulated, without KVM: only ratios mean something"
	SharedKernelDoubt = "the machines are containers on one kernel, that of this computer: they disturb each other more than virtual machines, and start programs faster"
)

// Observer observes this computer during a trial. The machines of the cluster run on this computer and belong to the benchmark. The
// returned function ends the observation, and returns whether something other than the benchmark disturbed the trial.
type Observer func(ctx context.Context, t Trial, r *Running) (stop func() (noise.Verdict, *noise.Report))

// Runner executes the trials of a sweep.
type Runner struct {
	Store   *Store
	Cluster Cluster
	Observe Observer
	Step    func(t Trial, what string)     // called at the beginning of each phase of an attempt; nil: not called
	End     func(t Trial, attempt Attempt) // called after an attempt; nil: not called
	// known means that the state of the cluster is known: no failed attempt and no other process has left something on the cluster.
	known bool
}

// Run executes the trials that have no result yet. A trial that is invalid or that failed is repeated at the end of its group. Run returns
// an error only if ctx ends or the folder of the sweep cannot be used; a trial that cannot be measured is in the results.
func (r *Runner) Run(ctx context.Context) error {
	trials := r.Store.Sweep.Trials
	for len(trials) > 0 {
		group := stats.Keep(trials, func(t Trial) bool { return t.Group == trials[0].Group }) // its trials are one after the other
		for range r.Store.Sweep.Benchmark.Retries + 1 {
			again := false
			for _, t := range group {
				counts, err := r.runOnce(ctx, t)
				if err != nil {
					return err
				}
				again = again || !counts
			}
			if !again {
				break
			}
		}
		trials = trials[len(group):]
	}
	return nil
}

// runOnce makes an attempt of a trial, unless the trial has a result or no attempts left. It reports whether the trial is done.
func (r *Runner) runOnce(ctx context.Context, t Trial) (done bool, err error) {
	all, err := r.Store.Attempts(t.Number)
	if err != nil || r.Store.Sweep.IsDone(all) {
		return true, err
	}
	number, folder, err := r.Store.begin(t.Number)
	if err != nil {
		return false, err
	}
	log, err := os.OpenFile(filepath.Join(folder, "apply.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	a := &attempt{Runner: r, trial: t, log: log, Attempt: Attempt{Trial: t.Number, Number: number, Began: time.Now().UTC(), Phases: map[string]float64{}}}
	failure := a.execute(ctx, folder)
	r.known = r.known && failure == nil && ctx.Err() == nil
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // no result: the attempt does not count
	}
	if failure != nil {
		a.State, a.Reasons = Failed, append(a.Reasons, failure.Error())
	}
	a.Ended = time.Now().UTC()
	if err := r.Store.finish(a.Attempt, a.events); err != nil {
		return false, err
	}
	if r.End != nil {
		r.End(t, a.Attempt)
	}
	return a.Counts(), nil
}

// attempt is an attempt to execute a trial, while it is in progress.
type attempt struct {
	*Runner
	Attempt
	trial  Trial
	log    io.Writer
	events []player.Event
	start  time.Time // submission times are relative to this time
	ended  time.Time // when the workload ended, or its time limit
}

// phase calls f, and records how long f took as the time of the phase with this name.
func (a *attempt) phase(name string, f func() error) error {
	leave := a.enter(name)
	err := f()
	leave()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// execute makes the attempt, and writes the files of the attempt to folder.
func (a *attempt) execute(ctx context.Context, folder string) error {
	sweep := a.Store.Sweep
	configuration := sweep.Configurations[a.trial.Configuration]
	jobs, err := a.Store.ReadTrialJobs(a.trial)
	if err != nil {
		return err
	}
	var running *Running
	if err := a.phase("deploy", func() error {
		if sweep.Benchmark.Reset == Fresh || !a.known {
			if err := a.Cluster.Remove(ctx, a.log); err != nil {
				return err
			}
		}
		a.known = false // until the attempt has succeeded
		running, err = a.Cluster.Deploy(ctx, configuration, a.log)
		a.known = err == nil
		return err
	}); err != nil {
		return err
	}
	defer running.Close()
	a.Systems = running.Systems
	if err := compareSystems(configuration.Systems, running.Systems); err != nil {
		return fmt.Errorf("%w: a file that is not in the sweep's copy of the hive, such as one of nixpkgs, was changed after the sweep was frozen; undo this, or begin a new sweep with nixbench bench run --new", err)
	}
	p, err := running.Player(sweep.Benchmark.Workloads[a.trial.Workload()], a.trial.Cell[SubmissionFactor] == ArraySubmission)
	if err != nil {
		return err
	}
	if sweep.Workloads[a.trial.Workload()].Program != "" {
		if p, err = a.newProgram(p, folder, running); err != nil {
			return err
		}
		defer func() { a.known = false }() // the state of the cluster is unknown after a program of the user has run, so the next trial begins with new machines
	}
	if err := a.phase("clean", func() error { return p.Clean(ctx) }); err != nil {
		return err
	}
	if a.Limits, err = p.Limits(ctx); err != nil {
		return fmt.Errorf("the limits of the scheduler: %w", err)
	}
	if err := a.phase("pause", func() error {
		if !engine.Sleep(ctx, workload.Seconds(sweep.Benchmark.Pause)) {
			return context.Cause(ctx)
		}
		return nil
	}); err != nil {
		return err
	}
	return a.play(ctx, p, jobs, running)
}

// play submits the jobs, computes the metrics of the trial, and decides whether the trial is valid, suspect or invalid.
func (a *attempt) play(ctx context.Context, p player.Player, jobs []workload.Job, running *Running) error {
	var before, after counters
	stop := func() (v noise.Verdict, r *noise.Report) { return } // until the observation has begun
	defer func() { stop() }()
	limit := workload.Seconds(a.Store.Sweep.Benchmark.Workloads[a.trial.Workload()].TimeLimit)
	playErr := a.submit(ctx, p, jobs, limit, func() error { // measure usage and noise from here on, without the preparations of the player
		stop = sync.OnceValues(a.Observe(ctx, a.trial, running))
		before.requests, before.errRequests = p.Requests(ctx)
		before.usage, before.errUsage = p.Usage(ctx) // the last reading before the workload, because the scheduler also receives the others
		if before.errUsage != nil {
			return fmt.Errorf("the usage of the scheduler: %w", before.errUsage)
		}
		return nil
	})
	if playErr != nil && (a.start.IsZero() || ctx.Err() != nil) {
		return playErr
	}
	// From the beginning of the workload on, a failure is a result: the workload did not finish. To repeat it would hide a scheduler that
	// breaks under load.
	unfinished, broken := playErr != nil, playErr != nil && !errors.Is(playErr, errTimeLimit)
	after.usage, after.errUsage = p.Usage(ctx)
	after.requests, after.errRequests = p.Requests(ctx)
	var cleanErr error
	if unfinished { // remove the jobs that still run, which would slow down the canary, the fixed work after the trial
		cleanErr = a.phase("clean", func() error { return p.Clean(ctx) })
	}
	verdict, report := stop()
	cpus := running.CPUs
	if len(jobs) == 0 {
		jobs, cpus = ObservedJobs(a.events, a.start), 0 // the number of processors of these jobs is unknown
	}
	a.Result = trial.Measure(jobs, a.start, a.ended, a.events, running.Nodes, cpus)
	a.Result.Hollow = running.Hollow
	a.State, a.Reasons, a.Noise = verdict.State, verdict.Reasons, report
	observed := p.Observed()
	a.Place, a.Image = observed.Place, observed.Image
	a.addCounters(before, after)
	a.addClocks(observed.Clocks)
	a.doubt(slices.Concat(running.Doubts, observed.Doubts, a.lateness())...)
	if n := a.Result.Unstamped; n > 0 && !a.withoutStamps() {
		a.doubt(fmt.Sprintf("%d of %d jobs have no stamp of their first and last instruction, so wait and other metrics are absent", n, a.Result.Finished))
	}
	switch {
	case broken:
		a.State, a.known = Suspect, false
		a.Reasons = append([]string{fmt.Sprintf("the workload broke off, and %d of %d jobs finished: %v", a.Result.Finished, len(jobs), playErr)}, a.Reasons...)
	case unfinished:
		a.Reasons = append(a.Reasons, fmt.Sprintf("%d of %d jobs finished in %v, the time limit", a.Result.Finished, len(jobs), limit))
	}
	a.addLimits(observed.Capacity)
	if !unfinished && a.Store.Sweep.Benchmark.Reset != Fresh {
		cleanErr = a.phase("clean", func() error { return p.Clean(ctx) })
	}
	if cleanErr != nil { // the result counts although the cleanup failed, and the next attempt gets a new cluster
		a.known = false
		a.Reasons = append(a.Reasons, cleanErr.Error())
	}
	return nil
}

// addUsage records the processor time and memory that each part of the scheduler has used, and their sums as metrics.
func (a *attempt) addUsage(before, after map[string]player.Usage) {
	a.Usage = map[string]player.Usage{}
	var cpu, memory float64
	for part, u := range after {
		u.CPU = max(0, u.CPU-before[part].CPU) // not less than 0: a part of the scheduler that was restarted during the trial has used less processor time than at the beginning
		a.Usage[part] = u
		cpu, memory = cpu+u.CPU, memory+float64(u.Memory)
	}
	if len(after) > 0 && a.Result.Metrics != nil {
		a.Result.Metrics["scheduler_cpu"], a.Result.Metrics["scheduler_memory"] = cpu, memory
	}
}

// addClocks records the difference between the clock of the scheduler's node and the clock of this computer, and the error of this
// difference.
func (a *attempt) addClocks(clocks *player.Clocks) {
	if clocks == nil {
		return
	}
	a.Clock = &Clock{
		Offset: clocks.Before.Offset.Seconds(), Drift: (clocks.After.Offset - clocks.Before.Offset).Seconds(),
		Error: max(clocks.Before.Error, clocks.After.Error).Seconds(),
	}
	a.Result.Metrics["clock_error"] = a.Clock.Error
}

// Shares and times from which on something else than the scheduler limits a trial.
const (
	fullPlaces = 0.9     // occupancy
	lateShare  = 0.5     // submit_error_max, as a share of the makespan
	nearClient = 2.0 / 3 // throughput, as a share of what the player could submit
	kwokDelay  = 1.0     // seconds from the placement of half of the pods on hollow nodes until kwok runs them
)

// addLimits records what limits the trial: limits of the scheduler that the measured rates have almost reached, the places for tasks, the
// submission of jobs, or the simulation of hollow nodes. A player that could hardly submit jobs faster is a doubt.
func (a *attempt) addLimits(capacity float64) {
	m := a.Result.Metrics
	for _, l := range a.Limits {
		if trial.NearLimit(l, m) {
			a.Limited = append(a.Limited, l.Name)
		}
	}
	if m["occupancy"] > fullPlaces {
		a.Limited = append(a.Limited, "places")
	}
	if late := m["submit_error_max"]; late > maxLate && late > lateShare*m["makespan"] {
		a.Limited = append(a.Limited, "the client")
	}
	if a.Result.Hollow > 0 && m["launch_p50"] > kwokDelay {
		a.Limited = append(a.Limited, "kwok")
	}
	if capacity == 0 {
		return
	}
	m["submit_capacity"] = capacity
	if rate := m["throughput"]; a.trial.Cell[SubmissionFactor] != ArraySubmission && rate > nearClient*capacity {
		a.doubt(fmt.Sprintf("%.3g jobs per second have finished, and the player can submit at most %.3g: the submission may limit the result", rate, capacity))
	}
}

func compareSystems(frozen map[string]System, running map[string]string) error {
	for _, node := range slices.Sorted(maps.Keys(frozen)) {
		if got := running[node]; got != frozen[node].Path {
			return fmt.Errorf("%s runs %s, and the sweep has frozen %s", node, got, frozen[node].Path)
		}
	}
	return nil
}
