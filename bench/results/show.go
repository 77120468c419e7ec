package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
)

// Report contains everything that a sweep has measured.
type Report struct {
	Sweep       bench.Sweep             `json:"sweep"`
	Progress    bench.Progress          `json:"progress"`
	Attempts    []bench.Attempt         `json:"attempts"`
	Claims      []stats.ClaimResult     `json:"claims"`
	Results     []Part                  `json:"results"`
	Systems     []bench.LevelDifference `json:"systems"`
	Calibration []Ratio                 `json:"calibration"`
	parts       []page.Input
}

// Part is the summary of the cells with hollow nodes, or of the cells with machines.
type Part struct {
	Hollow bool     `json:"hollow"`
	Notes  []string `json:"notes"`
	page.Summary
}

func NewReport(st *bench.Store) (Report, error) {
	r := Report{Sweep: st.Sweep, Attempts: []bench.Attempt{}, Results: []Part{}}
	in, all, parts, err := read(st)
	if err != nil {
		return r, err
	}
	r.parts = parts
	for _, t := range st.Sweep.Trials {
		r.Attempts = append(r.Attempts, all[t.Number]...)
	}
	for _, p := range r.parts {
		hollow := len(p.Cells) > 0 && isHollow(st.Sweep, p.Cells[0])
		r.Results = append(r.Results, Part{hollow, append([]string{}, p.Notes...), page.Summarise(p)})
		r.Claims = append(r.Claims, p.Claims...)
	}
	r.Progress, r.Systems, r.Calibration = st.Sweep.ProgressOf(all), in.Systems, calibrateWithin(st.Sweep, in)
	return r, nil
}

// Tables returns the tables of the report: first the claims, then for each part its notes and its tables, and at the end the comparison of
// hollow nodes with machines.
func (r Report) Tables() []page.Table {
	var claims, others []page.Table
	seen := map[string]bool{} // notes: several parts may have the same
	for _, part := range r.parts {
		title := func(t page.Table) page.Table {
			t.Title = strings.Trim(t.Title+": "+part.Name, ": ")
			return t
		}
		tables := page.SummaryTables(part)
		if len(part.Claims) > 0 {
			claims, tables = append(claims, title(tables[0])), tables[1:]
		}
		var notes []string
		for _, n := range part.Notes {
			if !seen[n] {
				notes = append(notes, n)
			}
			seen[n] = true
		}
		if len(notes) > 0 {
			others = append(others, title(page.Table{Title: "Notes", Note: strings.Join(notes, "\n")}))
		}
		for _, t := range tables {
			others = append(others, title(t))
		}
	}
	return slices.Concat(claims, others, ratioTables("Calibration: ratio of hollow nodes to as many machines", r.Calibration))
}

// TrialTables returns a table with a row for each attempt, and a table of the attempts' requests if requests were counted.
func (r Report) TrialTables() []page.Table {
	out := []page.Table{r.attemptTable()}
	if t := r.requestTable(); len(t.Rows) > 0 {
		out = append(out, t)
	}
	return out
}

func (r Report) attemptTable() page.Table {
	t := page.Table{Head: []string{"TRIAL", "BLOCK", "CELL", "STATE", "JOBS/S", "P50", "P90", "MAKESPAN", "CLOCK ERROR", "REASON"}}
	trials := map[int]bench.Trial{}
	for _, trial := range r.Sweep.Trials {
		trials[trial.Number] = trial
	}
	for _, at := range r.Attempts {
		trial := trials[at.Trial]
		row := []string{fmt.Sprint(trial.Number), fmt.Sprint(trial.Block), bench.NameCell(r.Sweep.Benchmark.Cells, trial.Cell), at.State}
		for _, metric := range []string{"throughput", "schedule_p50", "schedule_p90", "makespan", "clock_error"} {
			text := "-"
			if v, ok := at.Result.Metrics[metric]; ok {
				text = fmt.Sprintf("%.4g", v)
			} else if metric == "makespan" && at.Counts() && !at.Result.Complete {
				text = "did not finish"
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, append(row, strings.Join(at.Reasons, "; ")))
	}
	return t
}

// requestTable returns a table with the number of requests of each attempt, by program and verb.
func (r Report) requestTable() page.Table {
	t := page.Table{Head: []string{"TRIAL", "ATTEMPT", "PROGRAM", "VERB", "REQUESTS"}}
	for _, a := range r.Attempts {
		for _, q := range player.SumVerbs(a.Requests) {
			t.Rows = append(t.Rows, []string{fmt.Sprint(a.Trial), fmt.Sprint(a.Number), q.Source(), q.Verb, fmt.Sprint(q.Count)})
		}
	}
	return t
}
