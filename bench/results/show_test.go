package results

import (
	"testing"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/trial"
)

// The row of an attempt contains the error of the clock, and that not all jobs finished.
func TestAttemptTexts(t *testing.T) {
	complete := bench.Attempt{State: bench.Valid, Clock: &bench.Clock{Error: 0.00042}, Result: trial.Result{Complete: true, Metrics: map[string]float64{"makespan": 12.5}}}
	incomplete := bench.Attempt{State: bench.Suspect}
	failed := bench.Attempt{State: bench.Failed}
	for _, c := range []struct {
		attempt         bench.Attempt
		makespan, clock string
	}{{complete, "12.5", "±0.42 ms"}, {incomplete, "did not finish", "-"}, {failed, "-", "-"}} {
		if m, cl := makespanText(c.attempt), clockText(c.attempt); m != c.makespan || cl != c.clock {
			t.Errorf("%s: %q %q, want %q %q", c.attempt.State, m, cl, c.makespan, c.clock)
		}
	}
}
