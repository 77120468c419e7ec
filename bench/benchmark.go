package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Benchmark is one of the hive's `benchmarks`.
type Benchmark struct {
	Factors     map[string][]string        `json:"factors"`           // the levels of each factor, as --set has them
	Modules     map[string]string          `json:"modules,omitempty"` // by factor whose levels are modules: the hive's benchmark that has them
	Cells       []map[string]string        `json:"cells"`             // a level of each factor
	Workloads   map[string]WorkloadOptions `json:"workloads"`
	Repetitions int                        `json:"repetitions"`
	Warmup      int                        `json:"warmup"`
	Seed        uint64                     `json:"seed"`
	Order       string                     `json:"order"`
	Reset       string                     `json:"reset"`
	Pause       float64                    `json:"pause"` // in seconds, before a workload starts
	Retries     int                        `json:"retries"`
	Quiet       noise.Thresholds           `json:"quiet"`
	Limits      string                     `json:"limits,omitempty"` // HighLimits, or those of the hive
	Client      string                     `json:"client,omitempty"` // the role on whose first node the player's commands run; empty: on the scheduler's node
	Claims      map[string]string          `json:"claims"`
}

// HighLimits is the value of limits with which the clients of the scheduler may send many requests; see
// [Benchmark.ExtraModules].
const HighLimits = "high"

// WorkloadOptions is a workload of a benchmark.
type WorkloadOptions struct {
	Jobs  []json.RawMessage `json:"jobs"`
	Trace *string           `json:"trace"` // path of a file in the Standard Workload Format
	// Program has the path of a program and its arguments. ProgramInputs are derivations and store paths that must exist before it runs.
	Program       []string `json:"program,omitempty"`
	ProgramInputs []string `json:"programInputs,omitempty"`
	TraceJobs     int      `json:"traceJobs"`
	TraceCPUs     int      `json:"traceCpus"`
	TraceSpeed    float64  `json:"traceSpeed"`
	Arrival       Arrival  `json:"arrival"`
	TimeLimit     float64  `json:"timeLimit"` // in seconds
	// Players contains settings for the players of engines, by the kind of the engine.
	Players map[string]json.RawMessage `json:"players"`
}

// Arrival is when the jobs of a workload are submitted. With the rate 0, all of them are submitted at once.
type Arrival struct {
	Rate    float64 `json:"rate"` // jobs per second
	Poisson bool    `json:"poisson"`
}

// UnmarshalJSON decodes "burst", or a rate.
func (a *Arrival) UnmarshalJSON(data []byte) error {
	if string(data) == `"burst"` {
		*a = Arrival{}
		return nil
	}
	type plain Arrival
	return json.Unmarshal(data, (*plain)(a))
}

// Level is a level of a factor whose levels are NixOS modules.
type Level struct {
	Benchmark string `json:"benchmark"` // of the hive, with the modules
	Factor    string `json:"factor"`
	Level     string `json:"level"`
}

// The Nix files of benchmarks: their options, the functions that evaluate them, and the module of [HighLimits].
var (
	//go:embed nix/options.nix
	optionsNix string
	//go:embed nix/eval.nix
	evalNix string
	//go:embed nix/limits.nix
	limitsNix string
)

// evaluate returns a Nix function that applies a function of nix/eval.nix to the parts of a hive.
func evaluate(function string) string {
	return fmt.Sprintf("parts: ((%s) %s parts).%s", evalNix, nixeval.Module("nixbench/bench/nix/options.nix", optionsNix), function)
}

// ReadBenchmarks evaluates the benchmarks of a hive, by name. It evaluates no node.
func ReadBenchmarks(ctx context.Context, e *nixeval.Evaluator) (map[string]Benchmark, error) {
	var out map[string]Benchmark
	err := e.Query(ctx, evaluate("benchmarks"), &out)
	return out, toMatrixError(err)
}

// ReadBenchmark evaluates a benchmark that is not in the hive. value has the options of a benchmark, and must be JSON.
func ReadBenchmark(ctx context.Context, e *nixeval.Evaluator, value any) (Benchmark, error) {
	var out Benchmark
	text, err := nixeval.EncodeJSON(value)
	if err != nil {
		return out, err
	}
	err = e.Query(ctx, evaluate("benchmarkOf "+text), &out)
	return out, toMatrixError(err)
}

// CheckLevels returns an error if the hive does not accept one of the benchmark's levels that --set would set: a path that it does not have,
// a scheduler, or a value of another type. It evaluates no node. name is that of the benchmark.
func (b Benchmark) CheckLevels(ctx context.Context, e *nixeval.Evaluator, name string) error {
	type level struct {
		nixeval.Set
		Where string `json:"where"`
	}
	var levels []level
	for _, factor := range slices.Sorted(maps.Keys(b.Factors)) {
		for _, l := range b.Factors[factor] {
			if s, err := nixeval.ParseSet(factor + "=" + l); err == nil && b.Modules[factor] == "" { // workload and repeat are no paths
				levels = append(levels, level{s, fmt.Sprintf("benchmarks.%s: matrix.%s=%s", name, factor, l)})
			}
		}
	}
	if len(levels) == 0 {
		return nil
	}
	text, err := nixeval.EncodeJSON(levels)
	if err != nil {
		return err
	}
	var accepted bool
	return toMatrixError(e.Query(ctx, "parts: parts.checkSets "+text, &accepted))
}

// ExtraModules returns the modules that the nodes of a configuration have in addition to those of the hive, for [nixeval.Options]: those of the limits, and of
// levels that are modules.
func (b Benchmark) ExtraModules(c Configuration) ([]string, error) {
	var out []string
	if b.Limits == HighLimits {
		out = append(out, "_: _: [ "+nixeval.Module("nixbench/bench/nix/limits.nix", limitsNix)+" ]")
	}
	if len(c.Modules) == 0 {
		return out, nil
	}
	levels, err := nixeval.EncodeJSON(c.Modules)
	return append(out, evaluate("modulesOfLevels "+levels)), err
}

// matrixRE matches error messages of Nix about the levels of a benchmark: those that the Nix files throw, and those of the
// module system with the place of a level.
var matrixRE = regexp.MustCompile(`^nixbench: (benchmarks\.[^:]*: matrix\.(?s:.*))$|[` + "`" + `'‘"]benchmarks\.[^:]*: matrix\.`)

// toMatrixError returns an error of Nix about a level of a benchmark as a usage error (exit code 2). It returns other errors
// unchanged.
func toMatrixError(err error) error {
	var ne *nixeval.NixError
	if !errors.As(err, &ne) {
		return err
	}
	switch m := matrixRE.FindStringSubmatch(ne.Raw); {
	case m == nil:
		return err
	case m[1] != "":
		return failure.WithKind(failure.Usage, errors.New(strings.TrimSpace(m[1])))
	}
	return failure.WithKind(failure.Usage, errors.New(strings.TrimSpace(ne.Raw)))
}
