package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/bench/sweeps"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/nixeval"
)

func benchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure and compare schedulers",
		Long: `Measure schedulers: execute workloads on clusters of different sizes and with
different schedulers, in a random order, each trial on new machines.

A benchmark is an entry of benchmarks in the hive (docs/bench.md). An execution
of a benchmark is a sweep.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(benchPlanCommand(a), benchCheckCommand(a), benchRunCommand(a), benchListCommand(a), benchShowCommand(a),
		benchCompareCommand(a), benchDestroyCommand(a), benchExportCommand(a), benchReplayCommand(a))
	return cmd
}

// newSweeps returns the hive's sweeps (series of benchmark runs). A sweep deploys the hive as `nixbench apply` without flags does.
func newSweeps(a *app) (*sweeps.Sweeps, error) {
	var flags applyFlags
	flags.addTo(pflag.NewFlagSet("", pflag.ContinueOnError)) // sets the defaults
	options, err := flags.toOptions(node.Switch)
	if err != nil {
		return nil, err
	}
	flags.skipsAway = false // a trial needs all nodes
	r, err := a.newRequest(flags.fleetFlags)
	s := &sweeps.Sweeps{
		Request: r, Sets: a.sets, Apply: options, Schedulers: schedulers,
		Log: func(w io.Writer) (event.Sink, func()) {
			v := ui.New(ui.Options{Out: w, Err: w, Verbose: true, Color: "never"})
			follow, end := a.view.Follow()
			return func(e event.Event) { v.Event(e); follow(e) }, func() { _ = v.Close(); end() }
		},
	}
	return s, err
}

func addDescription(set *pflag.FlagSet, s *sweeps.Selection) {
	set.StringArrayVar(&s.Vary, "vary", nil, "a factor and its levels, `PATH=LEVELS`, for a benchmark that is not in the hive, such as roles.worker.count=2,4; repeatable")
	set.StringSliceVar(&s.Workloads, "workload", nil, "`NAMES` of workloads, with --vary: null or gang")
}

func addSelection(set *pflag.FlagSet, s *sweeps.Selection) {
	addDescription(set, s)
	set.IntVar(&s.Blocks, "blocks", 0, "number of blocks (default: that of the benchmark)")
	set.IntVar(&s.Seed, "seed", -1, "seed of the order (default: that of the benchmark)")
	set.Lookup("seed").DefValue = "0" // the help does not show it
}

func withSweeps(a *app, body func(s *sweeps.Sweeps, arg string) error) func(*cobra.Command, []string) error {
	return a.withView(func(args []string) error {
		s, err := newSweeps(a)
		if err != nil {
			return err
		}
		a.recording.Store(true) // an interrupt must wait until the operation in progress has ended
		return body(s, strings.Join(args, ""))
	})
}

// withBenchmark is like withSweeps, for a command about the benchmark that its argument and selected describe.
func withBenchmark(a *app, selected *sweeps.Selection, body func(s *sweeps.Sweeps, b *sweeps.Subject) error) func(*cobra.Command, []string) error {
	return withSweeps(a, func(s *sweeps.Sweeps, name string) error {
		selected.Name = name
		b, err := s.Load(a.ctx, *selected)
		if err != nil {
			return err
		}
		return body(s, b)
	})
}

func benchPlanCommand(a *app) *cobra.Command {
	var selected sweeps.Selection
	var noise float64
	cmd := &cobra.Command{
		Use:   "plan [BENCHMARK]",
		Short: "Show the cells and the trials of a benchmark",
		Long: `Show the cells, the workloads and the trials of a benchmark, in their order, and
how long they will take, from earlier trials of the hive if there are some.
Also show the smallest ratio that its comparisons can see. It depends on the
noise of a trial, which nixbench bench show prints for earlier sweeps. Nothing
is built and no machine is contacted.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if noise <= 0 {
			return failure.NewUsage("--noise must be above 0 (it is %g)", noise)
		}
		return nil
	}
	cmd.RunE = withBenchmark(a, &selected, func(s *sweeps.Sweeps, b *sweeps.Subject) error {
		duration, err := s.Expect(a.ctx, b)
		if err == nil {
			showBenchPlan(a, b, results.NewDesign(b.Benchmark, noise), duration)
		}
		return err
	})
	addSelection(cmd.Flags(), &selected)
	cmd.Flags().Float64Var(&noise, "noise", 0.03, "assumed `NOISE` of a trial: the standard deviation of its results, as a share")
	return cmd
}

func showBenchPlan(a *app, s *sweeps.Subject, design results.Design, duration results.Duration) {
	configurations, trials := bench.Plan(s.Benchmark)
	rows := []ui.Row{{"WORKLOAD", "JOBS", "TASKS", "HASH"}}
	for _, name := range nixeval.SortedNames(s.Described) {
		w := s.Described[name]
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
		order = append(order, ui.Row{fmt.Sprint(t.Number), block, bench.NameCell(s.Cells, t.Cell)})
	}
	a.view.Result(map[string]any{"name": s.Name, "configurations": configurations, "workloads": s.Described, "trials": trials, "design": design, "duration": duration}, func(w io.Writer) {
		fmt.Fprintf(w, "benchmark %s: %s in %s, %s, %s, seed %d, order %s, reset %s\n\n", s.Name, event.Count(len(s.Cells), "cell"),
			event.Count(len(configurations), "configuration"), event.Count(s.Repetitions, "block"), event.Count(len(trials), "trial"), s.Seed, s.Order, s.Reset)
		ui.Table(w, rows)
		fmt.Fprintln(w)
		if same := bench.FormatCell(bench.CommonLevels(s.Cells)); same != "" {
			fmt.Fprintf(w, "in all cells: %s\n\n", same)
		}
		ui.Table(w, order)
		fmt.Fprintf(w, "\n%s\n%s\n", duration, design)
		if s.Order == bench.Cheap {
			fmt.Fprintln(w, "\nwith order \"cheap\", configurations are confounded with time: a drift of the machine looks like a difference between them")
		}
	})
}

func benchCheckCommand(a *app) *cobra.Command {
	selected := sweeps.Selection{Seed: -1}
	cmd := &cobra.Command{
		Use:   "check [BENCHMARK]",
		Short: "Try each cell of a benchmark once, and show what would be suspect",
		Long: `Execute one trial of each cell of a benchmark, whose workload ends after at most
a minute. Show for each cell the verdict with its reasons, what limits the
result, and how long the trial took; and how long the benchmark will take. No
results are kept. The exit code is 9 if a trial has no result that counts.`,
		Example: `  nixbench bench check --vary scheduler=one,other --workload null`,
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.RunE = withBenchmark(a, &selected, func(s *sweeps.Sweeps, b *sweeps.Subject) error {
		check, err := s.Check(a.ctx, b)
		if err != nil {
			return err
		}
		a.view.Result(check, func(w io.Writer) {
			printTable(w, check.Table())
			fmt.Fprintf(w, "\n%s\n", check.Duration)
		})
		return check.Problems()
	})
	addDescription(cmd.Flags(), &selected)
	return cmd
}

func benchRunCommand(a *app) *cobra.Command {
	var selected sweeps.Selection
	cmd := &cobra.Command{
		Use:   "run [BENCHMARK]",
		Short: "Execute a benchmark, or continue one that was interrupted",
		Long: `Execute a benchmark. Its last sweep is continued if it is not complete and the
benchmark is still the same; otherwise a new sweep begins. With --blocks, a
complete sweep with fewer blocks is extended, up to maxBlocks of the benchmark.
The machines belong to the sweep, and are removed at the end.`,
		Example: `  nixbench bench run gang
  nixbench bench run --vary roles.worker.count=2,4,8 \
    --vary scheduler=one,other --workload null`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = withBenchmark(a, &selected, func(s *sweeps.Sweeps, b *sweeps.Subject) error {
		st, err := s.Run(a.ctx, b)
		return showExecuted(a, st, err)
	})
	addSelection(cmd.Flags(), &selected)
	cmd.Flags().BoolVar(&selected.New, "new", false, "begin a new sweep, also if the last one is not complete")
	cmd.Flags().BoolVar(&selected.Unpinned, "unpinned", false, "do not refuse a nixpkgs that is not pinned: from NIX_PATH, or outside of the hive's folder and of the store")
	return cmd
}

// showExecuted shows the results of a sweep. It returns an error if a trial has no result, or if a claim of the benchmark does not hold.
func showExecuted(a *app, st *bench.Store, err error) error {
	if err != nil {
		return err
	}
	report, err := results.NewReport(st)
	if err != nil {
		return err
	}
	showReport(a, report, report.Tables())
	return report.Check()
}

func benchDestroyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "destroy [FOLDER]",
		Short: "Remove the machines of interrupted sweeps",
		Long: `Remove the machines of the hive's sweeps that were interrupted, or of the sweep
in FOLDER. Their results remain, and nixbench bench run continues them.`,
		Args: cobra.MaximumNArgs(1),
		RunE: withSweeps(a, func(s *sweeps.Sweeps, folder string) error {
			return s.Destroy(a.ctx, folder)
		}),
	}
}

func benchReplayCommand(a *app) *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "replay ARCHIVE",
		Short: "Repeat a sweep from its archive",
		Long: `Repeat a sweep: build its systems from the frozen source, report which store
paths are identical, execute the same trials in the same order, and evaluate the
claims. ARCHIVE is a file of nixbench bench export --format archive. The same
command continues the new sweep after an interrupt.`,
		Example: `  nixbench bench replay sweep.tar.gz`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = withSweeps(a, func(s *sweeps.Sweeps, archive string) error {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(archive), ".gz"), ".tar") + "-replay"
		st, err := s.Replay(a.ctx, archive, cmp.Or(folder, name))
		return showExecuted(a, st, err)
	})
	cmd.Flags().StringVar(&folder, "dir", "", "create the new sweep in `FOLDER` (default: the name of the archive with -replay, in the working directory)")
	return cmd
}
