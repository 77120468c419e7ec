package results

import (
	"testing"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/trial"
)

// The row of an attempt says that not all jobs finished.
func TestAttemptTexts(t *testing.T) {
	for want, attempt := range map[string]bench.Attempt{
		"12.5":           {State: bench.Valid, Result: trial.Result{Complete: true, Metrics: map[string]float64{"makespan": 12.5}}},
		"did not finish": {State: bench.Suspect},
		"-":              {State: bench.Failed},
	} {
		if got := (Report{Attempts: []bench.Attempt{attempt}}).attemptTable().Rows[0][7]; got != want {
			t.Errorf("%s: %q, want %q", attempt.State, got, want)
		}
	}
}
