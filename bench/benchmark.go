// Package bench runs benchmarks of schedulers.
//
// A sweep is the execution of one benchmark. Everything that determines the results is frozen before the first trial: the source of the
// hive, the systems of each configuration, the workloads, and the order of the trials. A trial is one cell of the benchmark in one block.
// An attempt of a trial counts only if its result is complete, so a sweep that was killed continues with the interrupted trial.
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
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Benchmark is a benchmark that a hive declares in its option `benchmarks`.
type Benchmark struct {
	Factors     map[string][]string        `json:"factors"`           // the levels of each factor, in the syntax of --set
	Modules     map[string]string          `json:"modules,omitempty"` // factors whose levels are modules → the hive's benchmark with the modules
	Cells       []map[string]string        `json:"cells"`             // each cell maps factors to levels
	Workloads   map[string]WorkloadOptions `json:"workloads"`
	Repetitions int                        `json:"repetitions"`
	Warmup      int                        `json:"warmup"`
	Seed        uint64                     `json:"seed"`
	Order       string                     `json:"order"`
	Reset       string                     `json:"reset"`
	Pause       float64                    `json:"pause"` // in seconds, before a workload starts
	Retries     int                        `json:"retries"`
	Quiet       noise.Thresholds           `json:"quiet"`
	Client      string                     `json:"client,omitempty"` // the role on whose first node the player's commands run; empty: on the scheduler's node
	Claims      map[string]stats.Claim     `json:"claims"`
	Metrics     []string                   `json:"metrics,omitempty"`   // the primary metrics: their comparisons are corrected among themselves
	MaxBlocks   int                        `json:"maxBlocks,omitempty"` // the largest number of blocks to which a sweep may be extended; 0: Repetitions
}

// WorkloadOptions is a workload of a benchmark as the hive declares it.
type WorkloadOptions struct {
	Jobs  []json.RawMessage `json:"jobs"`
	Trace *string           `json:"trace"` // path of a file in the Standard Workload Format
	// Program has the path and the arguments of a program. ProgramInputs are derivations and store paths that must exist before Program
	// runs.
	Program             []string `json:"program,omitempty"`
	ProgramInputs       []string `json:"programInputs,omitempty"`
	workload.SWFOptions          // of Trace
	Arrival             Arrival  `json:"arrival"`
	TimeLimit           float64  `json:"timeLimit"` // in seconds
	// Players contains settings for the players, which submit the jobs to a scheduler. The key is the scheduler, such as slurm.
	Players map[string]json.RawMessage `json:"players"`
}

// Arrival says when the jobs of a workload are submitted. If the rate is 0, all jobs are submitted at the start.
type Arrival struct {
	Rate    float64 `json:"rate"` // jobs per second
	Poisson bool    `json:"poisson"`
}

// UnmarshalJSON decodes "burst" (the rate 0), or a set with a rate.
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
	Benchmark string `json:"benchmark"` // the hive's benchmark that defines the modules
	Factor    string `json:"factor"`
	Level     string `json:"level"`
}

// Embedded Nix files: the options of benchmarks, the functions that evaluate benchmarks, and the module of the level [Tuned].
var (
	//go:embed nix/options.nix
	optionsNix string
	//go:embed nix/eval.nix
	evalNix string
	//go:embed nix/limits.nix
	limitsNix string
)

// evaluate returns the text of a Nix function that calls this function of nix/eval.nix with the parts of a hive.
func evaluate(function string) string {
	return fmt.Sprintf("parts: ((%s) %s parts).%s", evalNix, nixeval.Module("nixbench/bench/nix/options.nix", optionsNix), function)
}

// ReadBenchmarks evaluates the benchmarks of a hive, but no node. It returns the benchmarks by name.
func ReadBenchmarks(ctx context.Context, e *nixeval.Evaluator) (map[string]Benchmark, error) {
	var out map[string]Benchmark
	err := e.Query(ctx, evaluate("benchmarks"), &out)
	return out, toMatrixError(err)
}

// ReadBenchmark evaluates a benchmark that is not in the hive. value contains the options of the benchmark, and must be encodable as JSON.
func ReadBenchmark(ctx context.Context, e *nixeval.Evaluator, value any) (Benchmark, error) {
	var out Benchmark
	err := e.Query(ctx, evaluate("benchmarkOf "+nixeval.EncodeJSON(value)), &out)
	return out, toMatrixError(err)
}

// CheckLevels returns an error if the hive does not accept one of the benchmark's levels that --set would set: the hive does not have the
// path or the scheduler, or the value has the wrong type. CheckLevels evaluates no node. name is the name of the benchmark.
func (b Benchmark) CheckLevels(ctx context.Context, e *nixeval.Evaluator, name string) error {
	type level struct {
		nixeval.Set
		Where string `json:"where"`
	}
	var levels []level
	for _, factor := range slices.Sorted(maps.Keys(b.Factors)) {
		for _, l := range b.Factors[factor] {
			if s, err := nixeval.ParseSet(factor + "=" + l); err == nil && b.Modules[factor] == "" { // ParseSet fails for the factors workload and repeat
				levels = append(levels, level{s, fmt.Sprintf("benchmarks.%s: matrix.%s=%s", name, factor, l)})
			}
		}
	}
	if len(levels) == 0 {
		return nil
	}
	var accepted bool
	return toMatrixError(e.Query(ctx, "parts: parts.checkSets "+nixeval.EncodeJSON(levels), &accepted))
}

// ExtraModules returns, for [nixeval.Options], the modules that the nodes of a configuration have in addition to the modules of the hive.
// These are the module of the level [Tuned], and the levels that are modules.
func (b Benchmark) ExtraModules(c Configuration) (out []string) {
	if c.Levels[LimitsFactor] == Tuned {
		out = append(out, "_: _: [ "+nixeval.Module("nixbench/bench/nix/limits.nix", limitsNix)+" ]")
	}
	if len(c.Modules) > 0 {
		out = append(out, evaluate("modulesOfLevels "+nixeval.EncodeJSON(c.Modules)))
	}
	return out
}

// matrixRE matches error messages of Nix about the levels of a benchmark. nix/eval.nix throws the messages that the first part matches. The
// second part matches messages of the module system that contain the place of a level.
var matrixRE = regexp.MustCompile(`^nixbench: (benchmarks\.[^:]*: matrix\.(?s:.*))$|[` + "`" + `'‘"]benchmarks\.[^:]*: matrix\.`)

// toMatrixError converts an error of Nix about a level of a benchmark to a usage error (exit code 2). It returns other errors
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
