package sweeps

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/results"
)

// checkSuffix ends the names of the sweeps that Check executes. The name of a benchmark cannot contain it.
const checkSuffix = ".check"

// checkLimit is the longest time limit of a workload in a trial of Check, in seconds.
const checkLimit = 60

// isOfCheck reports whether Check executes a sweep. Such a sweep is removed at its end.
func isOfCheck(sweep bench.Sweep) bool { return strings.HasSuffix(sweep.Name, checkSuffix) }

// Check executes one trial of each cell of a benchmark, with a short time limit, and returns what is suspect. It keeps no sweep.
func (s *Sweeps) Check(ctx context.Context, b *Subject) (results.Check, error) {
	short := *b
	short.isCheck, short.selected.New, short.selected.Blocks = true, true, 0
	short.Repetitions, short.Warmup, short.MaxBlocks, short.Retries, short.Claims = 1, 0, 0, 0, nil
	short.Workloads = maps.Clone(b.Workloads)
	for name, w := range short.Workloads {
		w.TimeLimit = min(w.TimeLimit, checkLimit)
		short.Workloads[name] = w
	}
	st, err := s.Run(ctx, &short)
	if err != nil {
		return results.Check{}, err
	}
	check, err := results.NewCheck(st)
	if err == nil {
		check.Duration, err = expect(b, []*bench.Store{st})
	}
	return check, errors.Join(err, os.RemoveAll(st.Folder))
}

func (s *Sweeps) Expect(ctx context.Context, b *Subject) (results.Duration, error) {
	former, err := s.List(ctx)
	if err != nil {
		return results.Duration{}, err
	}
	return expect(b, former)
}

// expect returns how long a sweep of a benchmark is expected to take, from the trials of former sweeps.
func expect(b *Subject, former []*bench.Store) (results.Duration, error) {
	h, err := results.NewHistory(b.Benchmark, b.Described, b.Jobs, former)
	if err != nil {
		return results.Duration{}, err
	}
	_, trials := bench.Plan(b.Benchmark)
	return h.Expect(trials), nil
}
