package deployments

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := append([]float64{}, c.values...)
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
		if diff := cmp.Diff(before, c.values); diff != "" {
			t.Errorf("median has changed its argument:\n%s", diff)
		}
	}
}

// A metric that one of the runs lacks has no median.
func TestTakeMedians(t *testing.T) {
	got := takeMedians([]figures{{wall: 1, logins: 2, programs: 5}, {wall: 7, logins: 2}, {wall: 3, logins: 8, programs: 6}})
	if diff := cmp.Diff(figures{wall: 3, logins: 2}, got); diff != "" {
		t.Error(diff)
	}
	if got := takeMedians(nil); len(got) != 0 {
		t.Errorf("medians of no runs: %v", got)
	}
}

func TestBudgets(t *testing.T) {
	s := scenario{budgets: []budget{{wall, 3, false}, {nodeCPU, 0.6, true}, {programs, 60, false}}}
	for _, c := range []struct {
		metric metric
		load   int
		want   float64
	}{{wall, 0, 3}, {wall, 4, 6}, {nodeCPU, 0, 6}, {nodeCPU, 4, 6}, {programs, 0, 60}} {
		if got, ok := s.findBudget(c.metric, 10, c.load); !ok || got != c.want {
			t.Errorf("%s with %d busy loops: %v, want %v", c.metric, c.load, got, c.want)
		}
	}
	if _, ok := s.findBudget(logins, 10, 0); ok {
		t.Error("logins have a budget")
	}
	for _, c := range []struct {
		figures figures
		want    int
	}{
		{figures{wall: 3, nodeCPU: 6, programs: 60}, 0},
		{figures{wall: 3.1, nodeCPU: 6.1, programs: 60}, 2},
		{figures{wall: 1, nodeCPU: 1}, 1}, // not measured
	} {
		if got := s.countExceeded(c.figures, 10, 0); got != c.want {
			t.Errorf("%v exceeds %d budgets, want %d", c.figures, got, c.want)
		}
	}
}

func TestSelectScenarios(t *testing.T) {
	all, err := selectScenarios("")
	if err != nil || len(all) != len(scenarios) {
		t.Errorf("%d scenarios, %v", len(all), err)
	}
	got, err := selectScenarios("line,noop")
	if err != nil || len(got) != 2 || got[0].name != "noop" || got[1].name != "line" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := selectScenarios("line,lines"); err == nil {
		t.Error("an unknown scenario is accepted")
	}
}
