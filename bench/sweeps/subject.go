package sweeps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Selection says which benchmark to run: a benchmark of the hive, or one that the command line describes with --vary.
type Selection struct {
	Name      string   // name of a benchmark in the hive; if empty, the hive must have only one benchmark
	Vary      []string // factors with their levels, FACTOR=LEVEL,…
	Workloads []string // levels of the factor workload
	Blocks    int      // number of blocks; 0: the repetitions that the benchmark declares
	Seed      int      // -1: the seed that the benchmark declares
	New       bool     // begin a new sweep, also if the last one is not complete
	Unpinned  bool     // the nixpkgs of the hive need not be pinned
}

// Subject is a benchmark to execute, with the jobs of its workloads.
type Subject struct {
	bench.Benchmark
	Name      string
	Jobs      map[string][]workload.Job
	Described map[string]bench.Workload // the identities of the workloads
	selected  Selection
	eval      *nixeval.Evaluator
	isCheck   bool // the sweep is that of Check
}

// Load evaluates and checks the selected benchmark, and makes the jobs of its workloads.
func (s *Sweeps) Load(ctx context.Context, selected Selection) (*Subject, error) {
	if selected.Blocks < 0 {
		return nil, failure.NewUsage("--blocks must be greater than 0 (it is %d)", selected.Blocks)
	}
	if selected.Seed < -1 {
		return nil, failure.NewUsage("--seed must not be negative (it is %d)", selected.Seed)
	}
	r := s.Request
	r.Eval.Send = r.Send
	e, err := r.Evaluator()
	if err != nil {
		return nil, err
	}
	b := &Subject{Jobs: map[string][]workload.Job{}, Described: map[string]bench.Workload{}, selected: selected, eval: e}
	if b.Name, b.Benchmark, err = selected.findBenchmark(ctx, e); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		kind := failure.Evaluation
		if selected.isDescribed() {
			kind = failure.Usage
		}
		return nil, failure.WithKind(kind, err)
	}
	if err := checkSets(s.Sets, b.Factors); err != nil {
		return nil, err
	}
	return b, b.CheckLevels(ctx, e, b.Name)
}

// isDescribed reports whether the command line describes the benchmark. Such a benchmark need not be in the hive.
func (s Selection) isDescribed() bool { return len(s.Vary) > 0 || len(s.Workloads) > 0 }

func (s Selection) findBenchmark(ctx context.Context, e *nixeval.Evaluator) (name string, b bench.Benchmark, err error) {
	if !s.isDescribed() {
		name, b, err = s.findInHive(ctx, e)
	} else if s.Name != "" {
		err = failure.NewUsage("--vary and --workload describe a benchmark, and %s names one; use one of them", s.Name)
	} else {
		var matrix map[string][]string
		if matrix, err = s.matrix(); err == nil {
			name = "adhoc"
			b, err = bench.ReadBenchmark(ctx, e, map[string]any{"matrix": matrix})
		}
	}
	if s.Blocks > 0 {
		b.Repetitions = s.Blocks
	}
	if s.Seed >= 0 {
		b.Seed = uint64(s.Seed)
	}
	return name, b, err
}

// findInHive returns the benchmark of the hive that the selection names, or the only benchmark if it names none.
func (s Selection) findInHive(ctx context.Context, e *nixeval.Evaluator) (string, bench.Benchmark, error) {
	var none bench.Benchmark
	all, err := bench.ReadBenchmarks(ctx, e)
	if err != nil {
		return "", none, err
	}
	names := slices.Sorted(maps.Keys(all))
	_, exists := all[s.Name]
	switch {
	case len(names) == 0:
		return "", none, failure.WithHint(failure.NewUsage("%s has no benchmarks", e.Source), "add benchmarks.NAME to the hive, or use --vary roles.ROLE.count=2,4")
	case exists:
		return s.Name, all[s.Name], nil
	case s.Name == "" && len(names) == 1:
		return names[0], all[names[0]], nil
	case s.Name == "":
		return "", none, failure.NewUsage("%s has several benchmarks; choose one of: %s", e.Source, strings.Join(names, ", "))
	}
	return "", none, failure.NewUsage("there is no benchmarks.%s; %s has: %s%s", s.Name, e.Source, strings.Join(names, ", "), failure.Suggest(s.Name, names))
}

// matrix returns the levels, by factor, of a benchmark that the command line describes.
func (s Selection) matrix() (map[string][]string, error) {
	matrix := map[string][]string{}
	for _, v := range s.Vary {
		factor, levels, ok := strings.Cut(v, "=")
		if !ok || factor == "" || levels == "" {
			return nil, failure.NewUsage("--vary needs a path and levels: --vary roles.worker.count=2,4 (it is %s)", v)
		}
		if matrix[factor] != nil {
			return nil, failure.NewUsage("--vary names the factor %s twice; write all its levels once: --vary %s=LEVEL,…", factor, factor)
		}
		matrix[factor] = strings.Split(levels, ",")
	}
	if len(s.Workloads) > 0 {
		matrix["workload"] = s.Workloads
	}
	for _, w := range matrix["workload"] {
		if known := []string{"null", "gang"}; !slices.Contains(known, w) {
			return nil, failure.NewUsage("there is no workload %s; without a benchmark in the hive, there are: null, gang%s", w, failure.Suggest(w, known))
		}
	}
	return matrix, nil
}

// checkSets returns an error if an argument of --set names the path of a factor, because the benchmark sets the values of
// factors itself.
func checkSets(sets []string, factors map[string][]string) error {
	for _, text := range sets {
		set, err := nixeval.ParseSet(text)
		if err != nil {
			return failure.WithKind(failure.Usage, err)
		}
		for _, f := range slices.Sorted(maps.Keys(factors)) {
			level, err := nixeval.ParseSet(f + "=")
			if err == nil && slices.Equal(level.Path, set.Path) {
				return failure.WithHint(failure.NewUsage("--set %s: the matrix of the benchmark varies %s, so that both would set it", text, f),
					"leave out --set, or remove the factor from the matrix")
			}
		}
	}
	return nil
}

// check checks the parts of a benchmark that the types of its Nix options do not check, such as claims. It also makes the jobs of the
// benchmark's workloads.
func (b *Subject) check() error {
	if err := bench.Check(b.Name, b.Benchmark); err != nil {
		return err
	}
	metrics := slices.Clone(b.Metrics)
	for _, name := range slices.Sorted(maps.Keys(b.Claims)) {
		metrics = append(metrics, b.Claims[name].Metric)
		if err := b.Claims[name].Check(b.Factors); err != nil {
			return fmt.Errorf("benchmarks.%s.claims.%s: %w", b.Name, name, err)
		}
	}
	for _, m := range metrics {
		if !slices.Contains(trial.Metrics, m) {
			return fmt.Errorf("benchmarks.%s: there is no metric %s; docs/bench.md lists them%s", b.Name, m, failure.Suggest(m, trial.Metrics))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Workloads)) {
		jobs, err := bench.MakeJobs(name, b.Workloads[name], b.Seed)
		if err == nil {
			b.Jobs[name] = jobs
			b.Described[name], err = bench.DescribeWorkload(name, b.Workloads[name], jobs)
		}
		if err != nil {
			return fmt.Errorf("benchmarks.%s.%w", b.Name, err)
		}
	}
	return nil
}
