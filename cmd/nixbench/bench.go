package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

const benchLong = `Measure schedulers: execute workloads on clusters of different sizes and with
different schedulers, in a random order, each trial on new machines.

A benchmark is an entry of benchmarks in the hive (docs/bench.md):

  benchmarks.null = {
    matrix = {
      "roles.worker.count" = [ 2 4 ];
      scheduler = [ "one" "other" ];
      workload = [ "null" ];
    };
    repetitions = 6;
  };

An execution of a benchmark is a sweep.`

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure and compare schedulers",
		Long:  benchLong,
		Args:  cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(a.benchPlanCommand(), a.benchRunCommand(), a.benchListCommand(), a.benchShowCommand(),
		a.benchCompareCommand(), a.benchDestroyCommand(), a.benchExportCommand(), a.benchReplayCommand())
	return cmd
}

// benchFlags select a benchmark of the hive, or describe one on the command line.
type benchFlags struct {
	vary        []string
	workloads   []string
	repetitions int
	seed        int
}

func (f *benchFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.SortFlags = false
	set.StringArrayVar(&f.vary, "vary", nil, "a factor and its levels, `PATH=LEVELS`, for a benchmark that is not in the hive, such as roles.worker.count=2,4; repeatable")
	set.StringSliceVar(&f.workloads, "workload", nil, "`NAMES` of workloads, with --vary: null or gang")
	set.IntVar(&f.repetitions, "repetitions", 0, "number of blocks (default: that of the benchmark)")
	set.IntVar(&f.seed, "seed", -1, "seed of the order (default: that of the benchmark)")
	set.Lookup("seed").DefValue = "0" // the help does not show it
}

// describe reports whether the flags describe a benchmark that is not in the hive.
func (f *benchFlags) describe() bool { return len(f.vary) > 0 || len(f.workloads) > 0 }

// find returns the name and the value of the benchmark that the arguments and flags select.
func (f *benchFlags) find(ctx context.Context, e *nixeval.Evaluator, args []string) (string, bench.Benchmark, error) {
	var none bench.Benchmark
	if !f.describe() {
		all, err := bench.ReadBenchmarks(ctx, e)
		if err != nil {
			return "", none, err
		}
		names := sortedNames(all)
		switch {
		case len(names) == 0:
			return "", none, failure.WithHint(newUsageError("%s has no benchmarks", e.Source), "add benchmarks.NAME to the hive, or use --vary roles.ROLE.count=2,4")
		case len(args) == 0 && len(names) == 1:
			args = names
		case len(args) == 0:
			return "", none, newUsageError("%s has several benchmarks; choose one of: %s", e.Source, strings.Join(names, ", "))
		}
		b, ok := all[args[0]]
		if !ok {
			return "", none, newUsageError("there is no benchmarks.%s; %s has: %s", args[0], e.Source, strings.Join(names, ", "))
		}
		return args[0], f.override(b), nil
	}
	if len(args) > 0 {
		return "", none, newUsageError("--vary and --workload describe a benchmark, and %s names one; use one of them", args[0])
	}
	matrix := map[string][]string{}
	for _, v := range f.vary {
		factor, levels, ok := strings.Cut(v, "=")
		if !ok || factor == "" || levels == "" {
			return "", none, newUsageError("--vary needs a path and levels: --vary roles.worker.count=2,4 (it is %s)", v)
		}
		if matrix[factor] != nil {
			return "", none, newUsageError("--vary names the factor %s twice; write all its levels once: --vary %s=LEVEL,…", factor, factor)
		}
		matrix[factor] = strings.Split(levels, ",")
	}
	if len(f.workloads) > 0 {
		matrix["workload"] = f.workloads
	}
	for _, w := range matrix["workload"] {
		if w != "null" && w != "gang" {
			return "", none, newUsageError("there is no workload %s; with --vary there are: null, gang. Other workloads need a benchmark in the hive", w)
		}
	}
	b, err := bench.ReadBenchmark(ctx, e, map[string]any{"matrix": matrix})
	return "adhoc", f.override(b), err
}

// override returns the benchmark with the values of flags.
func (f *benchFlags) override(b bench.Benchmark) bench.Benchmark {
	if f.repetitions > 0 {
		b.Repetitions = f.repetitions
	}
	if f.seed >= 0 {
		b.Seed = uint64(f.seed)
	}
	return b
}

// benchSubject is the benchmark of a command, with its workloads.
type benchSubject struct {
	eval *nixeval.Evaluator
	name string
	bench.Benchmark
	jobs     map[string][]workload.Job
	programs map[string]string // hashes of the programs of workloads
}

func (a *app) loadBenchmark(flags benchFlags, args []string) (*benchSubject, error) {
	if flags.repetitions < 0 {
		return nil, newUsageError("--repetitions must be greater than 0 (it is %d)", flags.repetitions)
	}
	if flags.seed < -1 {
		return nil, newUsageError("--seed must not be negative (it is %d)", flags.seed)
	}
	e, err := a.newEvaluator()
	if err != nil {
		return nil, err
	}
	s := &benchSubject{eval: e, jobs: map[string][]workload.Job{}, programs: map[string]string{}}
	if s.name, s.Benchmark, err = flags.find(a.ctx, e, args); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		kind := failure.Evaluation
		if flags.describe() {
			kind = failure.Usage
		}
		return nil, failure.WithKind(kind, err)
	}
	if err := checkSets(a.sets, s.Factors); err != nil {
		return nil, err
	}
	if err := s.CheckLevels(a.ctx, e, s.name); err != nil {
		return nil, err
	}
	return s, nil
}

// checkSets returns an error if an argument of --set names the path of a factor: the matrix sets it, too.
func checkSets(sets []string, factors map[string][]string) error {
	for _, text := range sets {
		set, err := nixeval.ParseSet(text)
		if err != nil {
			return failure.WithKind(failure.Usage, err)
		}
		for _, f := range sortedNames(factors) {
			level, err := nixeval.ParseSet(f + "=")
			if err == nil && slices.Equal(level.Path, set.Path) {
				return failure.WithHint(newUsageError("--set %s: the matrix of the benchmark varies %s, so that both would set it", text, f),
					"leave out --set, or remove the factor from the matrix")
			}
		}
	}
	return nil
}

// check checks what the options of a benchmark do not, and makes the jobs of its workloads.
func (s *benchSubject) check() error {
	if err := bench.Check(s.name, s.Benchmark); err != nil {
		return err
	}
	for _, name := range sortedNames(s.Claims) {
		if _, err := stats.ParseClaim(s.Claims[name]); err != nil {
			return fmt.Errorf("benchmarks.%s.claims.%s: %w", s.name, name, err)
		}
	}
	for _, name := range sortedNames(s.Workloads) {
		hash, err := bench.HashProgram(name, s.Workloads[name])
		if err != nil {
			return fmt.Errorf("benchmarks.%s.%w", s.name, err)
		}
		s.programs[name] = hash
		jobs, err := bench.MakeJobs(name, s.Workloads[name], s.Seed)
		if err != nil {
			return fmt.Errorf("benchmarks.%s.%w", s.name, err)
		}
		s.jobs[name] = jobs
	}
	return nil
}

func (a *app) benchPlanCommand() *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "plan [BENCHMARK]",
		Short: "Show the cells and the trials of a benchmark",
		Long: `Show the cells, the workloads and the trials of a benchmark, in their order.
Nothing is built and no machine is contacted.`,
		Example: `  nixbench bench plan gang
  nixbench bench plan --vary roles.worker.count=2,4 \
    --vary scheduler=one,other --workload null`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		s, err := a.loadBenchmark(flags, args)
		if err != nil {
			return err
		}
		a.showBenchPlan(s)
		return nil
	})
	flags.add(cmd)
	return cmd
}

func (a *app) showBenchPlan(s *benchSubject) {
	configurations, trials := bench.Plan(s.Benchmark)
	workloads := map[string]bench.Workload{}
	rows := []ui.Row{{"WORKLOAD", "JOBS", "TASKS", "HASH"}}
	for _, name := range sortedNames(s.jobs) {
		w := bench.Workload{Hash: workload.Hash(s.jobs[name]), Jobs: len(s.jobs[name]), Tasks: workload.Tasks(s.jobs[name]), Program: s.programs[name]}
		workloads[name] = w
		row := ui.Row{name, fmt.Sprint(w.Jobs), fmt.Sprint(w.Tasks), w.Hash[:19]}
		if w.Program != "" {
			row[3] += ", program " + w.Program[:19]
		}
		rows = append(rows, row)
	}
	order := []ui.Row{{"TRIAL", "BLOCK", "CELL"}}
	for _, t := range trials {
		block := fmt.Sprint(t.Block)
		if t.Block == 0 {
			block = "warm-up"
		}
		order = append(order, ui.Row{fmt.Sprint(t.Number), block, t.String()})
	}
	a.view.Result(map[string]any{"name": s.name, "configurations": configurations, "workloads": workloads, "trials": trials}, func(w io.Writer) {
		fmt.Fprintf(w, "benchmark %s: %s in %s, %s, %s, seed %d, order %s, reset %s\n\n", s.name, fleet.Count(len(s.Cells), "cell"),
			fleet.Count(len(configurations), "configuration"), fleet.Count(s.Repetitions, "block"), fleet.Count(len(trials), "trial"), s.Seed, s.Order, s.Reset)
		ui.Table(w, rows)
		fmt.Fprintln(w)
		ui.Table(w, order)
		if s.Order == bench.Cheap {
			fmt.Fprintln(w, "\nwith order \"cheap\", configurations are confounded with time: a drift of the machine looks like a difference between them")
		}
	})
}

func (a *app) benchRunCommand() *cobra.Command {
	var flags benchFlags
	var startNew bool
	cmd := &cobra.Command{
		Use:   "run [BENCHMARK]",
		Short: "Execute a benchmark, or continue one that was interrupted",
		Long: `Execute a benchmark. Its last sweep is continued if it is not complete and the
benchmark is still the same; otherwise a new sweep begins. The machines belong
to the sweep, and are removed at the end.`,
		Example: `  nixbench bench run gang
  nixbench bench run --vary roles.worker.count=2,4,8 \
    --vary scheduler=one,other --workload null
  nixbench bench run gang --new`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error { return a.benchRun(flags, args, startNew) })
	flags.add(cmd)
	cmd.Flags().BoolVar(&startNew, "new", false, "begin a new sweep, also if the last one is not complete")
	return cmd
}

func (a *app) benchDestroyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "destroy [FOLDER]",
		Short: "Remove the machines of interrupted sweeps",
		Long: `Remove the machines of the hive's sweeps that were interrupted, or of the sweep
in FOLDER. Their results remain, and nixbench bench run continues them.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(args) > 0 {
			st, err := bench.Open(args[0])
			if err != nil {
				return newUsageError("%s is not the folder of a sweep: %w", args[0], err)
			}
			return a.newBenchCluster(st.Folder, st.Sweep).Remove(a.ctx, io.Discard)
		}
		if _, _, err := a.surveyForState(); err != nil {
			return err
		}
		lock, err := state.Dir(a.sweepsFolder()).Lock(a.ctx, state.Self("bench destroy"))
		if err != nil {
			return err
		}
		defer lock.Unlock()
		return a.removeSweepMachines("")
	})
	return cmd
}

// sweepsFolder returns the folder of the hive's sweeps.
func (a *app) sweepsFolder() string { return filepath.Join(string(a.dir), "benchmarks") }

func (a *app) benchRun(flags benchFlags, args []string, startNew bool) error {
	s, err := a.loadBenchmark(flags, args)
	if err != nil {
		return err
	}
	hive, err := a.surveyHive(s.eval)
	if err != nil {
		return err
	}
	if err := a.checkNotDeployed(hive); err != nil {
		return err
	}
	if err := a.dir.Create(); err != nil {
		return err
	}
	lock, err := state.Dir(a.sweepsFolder()).Lock(a.ctx, state.Self("bench run"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	store, err := a.findSweepToContinue(s, startNew)
	if err != nil {
		return err
	}
	if store != nil {
		if err := a.removeSweepMachines(store.Sweep.ID); err != nil {
			return err
		}
		return a.runSweep(store)
	}
	if err := a.removeSweepMachines(""); err != nil { // machines of the new sweep have the same names
		return err
	}
	if store, err = a.freeze(s); err != nil {
		return err
	}
	return a.runSweep(store)
}

// removeSweepMachines removes the machines of all sweeps of the hive but one, whose id may be empty. Machines of several sweeps would have the
// same names.
func (a *app) removeSweepMachines(except string) error {
	all, err := bench.List(a.sweepsFolder())
	if err != nil {
		return err
	}
	for _, st := range all {
		if st.Sweep.ID == except {
			continue
		}
		c := a.newBenchCluster(st.Folder, st.Sweep)
		exist, err := c.hasMachines()
		if err != nil {
			return err
		}
		if exist {
			a.note("removing the machines of the sweep %s", st.Sweep.ID)
			if err := c.Remove(a.ctx, io.Discard); err != nil {
				return fmt.Errorf("remove the machines of the sweep %s: %w", st.Sweep.ID, err)
			}
		}
	}
	return nil
}

// checkNotDeployed returns an error if machines of the hive's own cluster exist: those of a sweep would have the same names.
func (a *app) checkNotDeployed(hive *nixeval.Hive) error {
	recorded, err := a.dir.Load()
	if err != nil || !hasMachines(recorded) {
		return err
	}
	return failure.WithHint(newUsageError("the cluster %s is deployed from this hive, and the machines of a benchmark would have the same names", hive.ClusterName()),
		"remove it first: nixbench destroy; or benchmark a copy of the hive with another cluster.name and cluster.network")
}

// findSweepToContinue returns the last sweep of the benchmark if it is not complete, and nil if a new one must begin.
func (a *app) findSweepToContinue(s *benchSubject, startNew bool) (*bench.Store, error) {
	all, err := bench.List(a.sweepsFolder())
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(st *bench.Store) bool { return st.Sweep.Name != s.name })
	if len(all) == 0 || startNew {
		return nil, nil
	}
	last := all[len(all)-1]
	p, err := last.Progress()
	switch {
	case err != nil:
		return nil, err
	case p.Done == p.Trials:
		return nil, nil
	case last.IsOf(s.Benchmark, s.jobs, a.sets):
		a.note("continuing the sweep %s: %d of %d trials are done", last.Sweep.ID, p.Done, p.Trials)
		return last, nil
	}
	a.note("the benchmark was changed since the sweep %s, which is not complete; a new sweep begins", last.Sweep.ID)
	return nil, nil
}

// note shows a message.
func (a *app) note(format string, args ...any) {
	a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: fmt.Sprintf(format, args...)})
}

// freeze copies the source of the hive, and builds the systems of all configurations.
func (a *app) freeze(s *benchSubject) (*bench.Store, error) {
	now := time.Now()
	sweep := bench.Sweep{
		ID: bench.NewID(s.name, now), Name: s.name, Created: now.UTC(), Hive: runs.SafeURLs(s.eval.Source.String()), Revision: readGitRevision(a.ctx, s.eval.Source.Dir),
		Nixbench: readBuildVersion().Version, Host: a.readHost(), Benchmark: s.Benchmark, Sets: a.sets,
	}
	sweep.Configurations, sweep.Trials = bench.Plan(s.Benchmark)
	if err := bench.RemoveIncomplete(a.sweepsFolder()); err != nil {
		return nil, err
	}
	folder := filepath.Join(a.sweepsFolder(), sweep.ID)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	err := a.freezeInto(folder, s, &sweep)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder)) // no machine exists
	}
	return bench.Create(folder, sweep, s.jobs)
}

// readHost describes this computer.
func (a *app) readHost() bench.Host {
	h := bench.ReadHost("/")
	h.Nix, _ = inspect.NixVersion(a.ctx) // otherwise, the evaluation reports the error
	return h
}

func (a *app) freezeInto(folder string, s *benchSubject, sweep *bench.Sweep) error {
	src := s.eval.Source
	inGit := strings.HasPrefix(src.Flake, "git+file:")
	if src.IsFlake() && !inGit && !src.Copied {
		return failure.WithHint(newUsageError("the flake %s is not on this computer, and a sweep keeps a copy of its source", src.Flake), "clone it, and use --flake FOLDER")
	}
	copied, err := bench.CopySource(a.ctx, src.Dir, filepath.Join(folder, "source"), inGit)
	if err != nil {
		return err
	}
	sweep.Source, sweep.SourceHash, sweep.Untracked = copied.Folder, copied.Hash, copied.Untracked
	if sweep.Flake, sweep.Git, sweep.Attr = src.IsFlake(), inGit, src.Attr; !sweep.Flake {
		sweep.Source = filepath.Join(copied.Folder, filepath.Base(src.File))
	}
	if err := s.eval.Keep(a.ctx, programRoots(folder, s.Workloads)); err != nil && a.ctx.Err() == nil {
		return failure.WithKind(failure.Build, fmt.Errorf("benchmarks.%s: build the programs of workloads: %w", s.name, err))
	} else if err != nil {
		return err
	}
	return a.buildSweep(folder, sweep)
}

// programRoots returns the derivations and store paths of the programs of workloads, by the links that keep them in the store.
func programRoots(folder string, workloads map[string]bench.WorkloadOptions) map[string]string {
	links := map[string]string{}
	for name, w := range workloads {
		for i, path := range w.ProgramInputs {
			links[filepath.Join(folder, "gcroots", fmt.Sprintf("program-%s-%d", name, i))] = path
		}
	}
	return links
}

// buildSweep evaluates and builds the systems of all configurations from the sweep's copy of the source.
func (a *app) buildSweep(folder string, sweep *bench.Sweep) error {
	if sweep.Git {
		if err := bench.TrackSource(a.ctx, filepath.Join(folder, "source")); err != nil {
			return err
		}
	}
	cluster := a.newBenchCluster(folder, *sweep)
	log, err := os.OpenFile(filepath.Join(folder, "freeze.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	for i := range sweep.Configurations {
		c := &sweep.Configurations[i]
		wait := event.Sink(a.sendEvent).Wait(event.Event{Phase: event.Build, Text: fmt.Sprintf("configuration %d of %d: %s", i+1, len(sweep.Configurations), bench.FormatCell(c.Levels))})
		err = cluster.Freeze(a.ctx, c, log)
		wait.End()
		if err != nil && len(c.Levels) > 0 {
			err = fmt.Errorf("%s: %w", bench.FormatCell(c.Levels), err)
		}
		if err != nil {
			return err
		}
	}
	sweep.Cluster = cluster.name
	return cluster.keepReservation()
}

// newBenchCluster returns the cluster of a sweep.
func (a *app) newBenchCluster(folder string, sweep bench.Sweep) *benchCluster {
	if absolute, err := filepath.Abs(folder); err == nil { // programs of workloads run elsewhere
		folder = absolute
	}
	c := &benchCluster{app: a, folder: folder, source: filepath.Join(folder, "source", sweep.Source), sets: sweep.Sets, first: sweep.Configurations[0], client: sweep.Benchmark.Client, benchmark: sweep.Benchmark}
	if sweep.RepeatOf == "" {
		c.shared = filepath.Join(filepath.Dir(folder), "reservation")
	}
	if c.flake = sweep.Flake; c.flake {
		if !sweep.Git {
			// Not a path alone: Nix would look for the flake in the git repository that contains the folder of the sweep.
			c.source = "path:" + (&url.URL{Path: c.source}).EscapedPath()
		}
		if sweep.Attr != "" {
			c.source += "#" + sweep.Attr
		}
	}
	c.name = sweep.Cluster
	return c
}

// runSweep executes the trials that are left, and removes the machines.
func (a *app) runSweep(store *bench.Store) error {
	sweep := store.Sweep
	a.recording.Store(true) // an interrupt waits until the operation in progress has ended
	cluster := a.newBenchCluster(store.Folder, sweep)
	sink := event.Sink(a.sendEvent)
	var wait *event.Wait
	endWait := func() {
		if wait != nil {
			wait.End()
			wait = nil
		}
	}
	defer endWait()
	reference, err := loadReference(a.ctx, store)
	if err != nil {
		return err
	}
	r := &bench.Runner{
		Store: store, Cluster: cluster, Observe: newObserver(store, reference),
		Step: func(t bench.Trial, what string) {
			endWait()
			wait = sink.Wait(event.Event{Phase: event.Check, Text: fmt.Sprintf("trial %d of %d, %s: %s", t.Number, len(sweep.Trials), what, t)})
		},
		End: func(t bench.Trial, at bench.Attempt) {
			endWait()
			a.note("%s", results.DescribeAttempt(t, at, len(sweep.Trials)))
		},
	}
	a.note("sweep %s: %d trials; results are in %s", sweep.ID, len(sweep.Trials), store.Folder)
	began := time.Now()
	runErr := r.Run(a.ctx)
	endWait()
	if runErr != nil {
		a.note("the machines of the sweep remain; the same command continues it, and nixbench bench destroy removes them")
		return runErr
	}
	if err := cluster.Remove(a.ctx, io.Discard); err != nil {
		return fmt.Errorf("remove the machines of the sweep: %w", err)
	}
	p, err := store.Progress()
	if err != nil {
		return err
	}
	a.note("%s", results.DescribeProgress(p, time.Since(began)))
	if err := a.showSweep(store, false); err != nil {
		return err
	}
	return results.Check(store)
}
