package nixeval

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
)

// Benchmark is one of the hive's `benchmarks`.
type Benchmark struct {
	Factors     map[string][]string          `json:"factors"`           // the levels of each factor, as --set has them
	Modules     map[string]string            `json:"modules,omitempty"` // by factor whose levels are modules: the hive's benchmark that has them
	Cells       []map[string]string          `json:"cells"`             // a level of each factor
	Workloads   map[string]BenchmarkWorkload `json:"workloads"`
	Repetitions int                          `json:"repetitions"`
	Warmup      int                          `json:"warmup"`
	Seed        uint64                       `json:"seed"`
	Order       string                       `json:"order"`
	Reset       string                       `json:"reset"`
	Pause       float64                      `json:"pause"` // in seconds, before a workload starts
	Retries     int                          `json:"retries"`
	Quiet       Quiet                        `json:"quiet"`
	Limits      string                       `json:"limits,omitempty"` // HighLimits, or those of the hive
	Client      string                       `json:"client,omitempty"` // the role on whose first node the player's commands run; empty: on the scheduler's node
	Claims      map[string]string            `json:"claims"`
}

// HighLimits are the limits of a benchmark in which the clients of the scheduler have high limits, see Options.HighLimits.
const HighLimits = "high"

// Quiet contains the limits up to which a trial is valid. One that is nil is not judged: sweeps of earlier versions have only the first four.
type Quiet struct {
	Steal      float64 `json:"steal"`
	ForeignCPU float64 `json:"foreignCpu"`
	PSICPU     float64 `json:"psiCpu"`
	Canary     float64 `json:"canary"`

	Throttled      *float64 `json:"throttled,omitempty"`
	SwapPages      *float64 `json:"swapPages,omitempty"`      // per second
	KernelMessages *float64 `json:"kernelMessages,omitempty"` // their number
	Fsync          *float64 `json:"fsync,omitempty"`
	RoundTrip      *float64 `json:"roundTrip,omitempty"`
	Clock          *float64 `json:"clock,omitempty"` // in seconds
	Frequency      *float64 `json:"frequency,omitempty"`
}

// BenchmarkWorkload is a workload of a benchmark.
type BenchmarkWorkload struct {
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

// Arrival is when the jobs of a workload are submitted. Rate 0 is all at once.
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

// Benchmarks evaluates the benchmarks of the hive, by name. It evaluates no node.
func (e *Evaluator) Benchmarks(ctx context.Context) (map[string]Benchmark, error) {
	var out map[string]Benchmark
	err := e.eval(ctx, event.Survey, "h: h.benchmarks", &out)
	return out, toMatrixError(err)
}

// BenchmarkOf evaluates a benchmark that is not in the hive. value has the options of a benchmark, and must be JSON.
func (e *Evaluator) BenchmarkOf(ctx context.Context, value any) (Benchmark, error) {
	var out Benchmark
	text, err := nixJSON(value)
	if err != nil {
		return out, err
	}
	err = e.eval(ctx, event.Survey, "h: h.benchmarkOf "+text, &out)
	return out, toMatrixError(err)
}

// CheckLevels returns an error if the hive does not accept one of the benchmark's levels that --set would set: a path that it does not have,
// a scheduler, or a value of another type. It evaluates no node. name is that of the benchmark.
func (e *Evaluator) CheckLevels(ctx context.Context, name string, b Benchmark) error {
	type level struct {
		Set
		Where string `json:"where"`
	}
	var levels []level
	for _, factor := range slices.Sorted(maps.Keys(b.Factors)) {
		for _, l := range b.Factors[factor] {
			if s, err := ParseSet(factor + "=" + l); err == nil && b.Modules[factor] == "" { // workload and repeat are no paths
				levels = append(levels, level{s, fmt.Sprintf("benchmarks.%s: matrix.%s=%s", name, factor, l)})
			}
		}
	}
	if len(levels) == 0 {
		return nil
	}
	text, err := nixJSON(levels)
	if err != nil {
		return err
	}
	var accepted bool
	return toMatrixError(e.eval(ctx, event.Survey, "h: h.checkLevels "+text, &accepted))
}
