package nixeval

import (
	"context"
	"encoding/json"

	"github.com/nixbench/nixbench/deploy/event"
)

// Benchmark is one of the hive's `benchmarks`.
type Benchmark struct {
	Factors     map[string][]string          `json:"factors"` // the levels of each factor, as --set has them
	Cells       []map[string]string          `json:"cells"`   // a level of each factor
	Workloads   map[string]BenchmarkWorkload `json:"workloads"`
	Repetitions int                          `json:"repetitions"`
	Warmup      int                          `json:"warmup"`
	Seed        uint64                       `json:"seed"`
	Order       string                       `json:"order"`
	Reset       string                       `json:"reset"`
	Pause       float64                      `json:"pause"` // in seconds, before a workload starts
	Retries     int                          `json:"retries"`
	Quiet       Quiet                        `json:"quiet"`
	Claims      map[string]string            `json:"claims"`
}

// Quiet contains the shares up to which a trial is valid.
type Quiet struct {
	Steal      float64 `json:"steal"`
	ForeignCPU float64 `json:"foreignCpu"`
	PSICPU     float64 `json:"psiCpu"`
	Canary     float64 `json:"canary"`
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

// Benchmarks evaluates the benchmarks of the hive, by name. It evaluates no node.
func (e *Evaluator) Benchmarks(ctx context.Context) (map[string]Benchmark, error) {
	var out map[string]Benchmark
	err := e.eval(ctx, event.Survey, "h: h.benchmarks", &out)
	return out, err
}

// BenchmarkOf evaluates a benchmark that is not in the hive. value has the options of a benchmark, and must be JSON.
func (e *Evaluator) BenchmarkOf(ctx context.Context, value any) (Benchmark, error) {
	var out Benchmark
	text, err := nixJSON(value)
	if err != nil {
		return out, err
	}
	err = e.eval(ctx, event.Survey, "h: h.benchmarkOf "+text, &out)
	return out, err
}
