package results

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
)

// hollowSweep returns the results of a sweep with a cell of machines and a cell of hollow nodes, unless both are of one kind.
func hollowSweep(first, second int) page.Input {
	levels := []map[string]string{{"roles.node.hollow": "0"}, {"roles.node.hollow": "8"}}
	cells := []map[string]string{{"roles.node.hollow": "0", "workload": "w"}, {"roles.node.hollow": "8", "workload": "w"}}
	s := bench.Sweep{
		Benchmark:      bench.Benchmark{Cells: cells, Claims: map[string]stats.Claim{"same": {Metric: "throughput", Factor: "roles.node.hollow", A: "8", B: "0", Op: ">", Value: 0.9}}},
		Configurations: []bench.Configuration{{Levels: levels[0], Hollow: first}, {Levels: levels[1], Hollow: second}},
		Trials:         []bench.Trial{{Cell: cells[0]}, {Cell: cells[1], Configuration: 1}},
	}
	in := page.Input{Sweep: s, Cells: cells}
	for _, c := range cells {
		in.Trials = append(in.Trials, page.Trial{Sample: stats.Sample{Cell: c, Metrics: map[string]float64{"throughput": 1}}, Attempt: bench.Attempt{State: bench.Valid, Limited: []string{"places"}}})
	}
	return in
}

// No part of the results has hollow nodes and machines.
func TestSplitHollow(t *testing.T) {
	for _, test := range []struct{ first, second, parts int }{{0, 0, 1}, {8, 8, 1}, {0, 8, 2}} {
		in := hollowSweep(test.first, test.second)
		parts := splitHollow(in, nil, nil)
		if len(parts) != test.parts {
			t.Fatalf("%+v: %d parts", test, len(parts))
		}
		for i, p := range parts {
			if want := 2 / test.parts; len(p.Cells) != want || len(p.Trials) != want {
				t.Errorf("%+v: part %d has %d cells and %d trials", test, i, len(p.Cells), len(p.Trials))
			}
			// A note names the cells of its page only.
			if hasCell := strings.Contains(strings.Join(p.Notes, "\n"), "Limited by places in at least one trial: node.hollow="); hasCell != (test.parts == 1) {
				t.Errorf("%+v: part %d has the notes %q", test, i, p.Notes)
			}
			for _, c := range p.Claims {
				if test.parts == 2 && len(c.Parts) > 0 {
					t.Errorf("a claim compares hollow nodes with machines: %+v", c)
				}
			}
		}
	}
}
