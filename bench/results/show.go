package results

import (
	"fmt"
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

// NewReport reads the results of a sweep.
func NewReport(st *bench.Store) (Report, error) {
	r := Report{Sweep: st.Sweep, Attempts: []bench.Attempt{}, Results: []Part{}}
	all, err := st.AllAttempts()
	if err != nil {
		return r, err
	}
	for _, t := range st.Sweep.Trials {
		r.Attempts = append(r.Attempts, all[t.Number]...)
	}
	in, _ := summarise(st.Sweep, all)
	baselines, err := readBaselines(st)
	if err != nil {
		return r, err
	}
	r.parts = splitHollow(st.Sweep, in, baselines)
	for _, p := range r.parts {
		hollow := len(p.Cells) > 0 && isHollow(st.Sweep, p.Cells[0])
		r.Results = append(r.Results, Part{hollow, append([]string{}, p.Notes...), page.Summarise(p)})
		r.Claims = append(r.Claims, p.Claims...)
	}
	r.Progress, r.Systems, r.Calibration = st.Sweep.ProgressOf(all), in.Systems, calibrateWithin(st.Sweep, in)
	return r, nil
}

// Tables returns the tables of the report: for each part its notes and its tables, and then the comparison of hollow nodes with machines.
func (r Report) Tables() []page.Table {
	var out []page.Table
	for _, part := range r.parts {
		if len(part.Notes) > 0 {
			out = append(out, page.Table{Note: strings.Join(part.Notes, "\n")})
		}
		out = append(out, page.SummaryTables(part)...)
	}
	return append(out, calibrationTables(r.Calibration)...)
}

// TrialTables returns a table with a row for each attempt, and a table of the attempts' requests if requests were counted.
func (r Report) TrialTables() []page.Table {
	out := []page.Table{r.attemptTable()}
	if t := r.requestTable(); len(t.Rows) > 0 {
		out = append(out, t)
	}
	return out
}

// attemptTable returns a table with a row for each attempt of each trial.
func (r Report) attemptTable() page.Table {
	t := page.Table{Head: []string{"TRIAL", "BLOCK", "CELL", "STATE", "JOBS/S", "P50", "P90", "MAKESPAN", "CLOCK ERROR", "REASON"}}
	trials := map[int]bench.Trial{}
	for _, trial := range r.Sweep.Trials {
		trials[trial.Number] = trial
	}
	for _, at := range r.Attempts {
		trial := trials[at.Trial]
		t.Rows = append(t.Rows, []string{fmt.Sprint(trial.Number), fmt.Sprint(trial.Block), trial.String(), at.State, metricText(at, "throughput"),
			metricText(at, "schedule_p50"), metricText(at, "schedule_p90"), makespanText(at), metricText(at, "clock_error"), strings.Join(at.Reasons, "; ")})
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

// makespanText returns the makespan of an attempt, or a text that says that not all jobs finished.
func makespanText(at bench.Attempt) string {
	if at.Counts() && !at.Result.Complete {
		return "did not finish"
	}
	return metricText(at, "makespan")
}

// metricText returns the value of a metric of an attempt, or "-" if the attempt has not measured the metric.
func metricText(at bench.Attempt, name string) string {
	if v, ok := at.Result.Metrics[name]; ok {
		return fmt.Sprintf("%.4g", v)
	}
	return "-"
}
