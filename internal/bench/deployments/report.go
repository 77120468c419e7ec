package deployments

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// report contains the figures of all scenarios. It is also the content of the JSON file.
type report struct {
	Machines    int              `json:"machines"`
	Repeat      int              `json:"repeat"`
	Load        int              `json:"load"`
	Generations int              `json:"generations"`
	Size        int              `json:"sizeMegabytes"`
	Tools       []toolReport     `json:"tools"`
	Scenarios   []scenarioReport `json:"scenarios"`
	Notes       []string         `json:"notes,omitempty"`
}

type toolReport struct {
	Label   string `json:"label"`
	Program string `json:"program,omitempty"`
	Command string `json:"command,omitempty"`
}

type scenarioReport struct {
	Name    string               `json:"name"`
	Title   string               `json:"title"`
	Budgets figures              `json:"budgets"`
	Median  map[string]figures   `json:"median"` // by label
	Runs    map[string][]figures `json:"runs"`
	Failed  map[string]string    `json:"failed,omitempty"`

	exceeded int
}

func (t *tool) describe() toolReport { return toolReport{t.label, t.program, t.command} }

// add adds the result of a scenario.
func (r *report) add(s scenario, result scenarioResult) {
	out := scenarioReport{Name: s.name, Title: s.title, Budgets: figures{}, Median: map[string]figures{}, Runs: result.runs, Failed: map[string]string{}}
	for _, m := range metrics {
		if limit, ok := s.findBudget(m.metric, r.Machines, r.Load); ok {
			out.Budgets[m.metric] = limit
		}
	}
	for _, t := range r.Tools {
		if err := result.failed[t.Label]; err != nil {
			out.Failed[t.Label] = err.Error()
			continue
		}
		out.Median[t.Label] = takeMedians(result.runs[t.Label])
		if one, ok := r.findMedian("copy-one", t.Label, wall); ok && s.name == "copy-all" {
			out.Median[t.Label][timesOne] = out.Median[t.Label][wall] / one
		}
	}
	out.exceeded = s.countExceeded(out.Median[r.Tools[0].Label], r.Machines, r.Load)
	r.Scenarios = append(r.Scenarios, out)
}

// findMedian returns the median of a metric in a scenario that was added before.
func (r *report) findMedian(scenario, label string, m metric) (float64, bool) {
	for _, s := range r.Scenarios {
		if s.Name == scenario {
			v, ok := s.Median[label][m]
			return v, ok && v > 0
		}
	}
	return 0, false
}

// print prints a table: for each scenario its metrics, with one column for each tool, the ratio, and the budget.
func (r *report) print(out io.Writer) error {
	w := &bytes.Buffer{}
	fmt.Fprintf(w, "%d machines, medians of %d runs, %d busy loops, %d generations added\n", r.Machines, r.Repeat, r.Load, r.Generations)
	for _, t := range r.Tools {
		fmt.Fprintf(w, "%s: %s%s\n", t.Label, t.Program, t.Command)
	}
	fmt.Fprintln(w, explanation)
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, s := range r.Scenarios {
		header := []string{s.Name + ": " + s.Title}
		for _, t := range r.Tools {
			header = append(header, t.Label)
		}
		if len(r.Tools) == 2 {
			header = append(header, r.Tools[0].Label+"/"+r.Tools[1].Label)
		}
		fmt.Fprintf(table, "\n%s\n", strings.Join(append(header, "budget"), "\t"))
		for _, row := range s.listRows(r.Tools) {
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) { // cells without a text end with spaces
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	for _, s := range r.Scenarios {
		for _, t := range r.Tools {
			if text := s.Failed[t.Label]; text != "" {
				fmt.Fprintf(w, "\n%s: %s failed: %s\n", s.Name, t.Label, text)
			}
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	_, err := out.Write(w.Bytes())
	return err
}

const explanation = `Programs are calls of execve, processes include those that call none (subshells); both come from the kernel's process
events. The nodes' processor time is that of their cgroups until they are quiet. The time here is that of the program and its children.`

// listRows returns the rows of the metrics that at least one tool has.
func (s scenarioReport) listRows(tools []toolReport) [][]string {
	var rows [][]string
	for _, m := range metrics {
		row, values := []string{"  " + m.title}, []float64{}
		for _, t := range tools {
			if v, ok := s.Median[t.Label][m.metric]; ok {
				row, values = append(row, m.format(v)), append(values, v)
			} else {
				row = append(row, "-")
			}
		}
		limit, limited := s.Budgets[m.metric]
		if len(values) == 0 && !limited {
			continue
		}
		if len(tools) == 2 {
			ratio := "-"
			if len(values) == 2 && values[1] > 0 {
				ratio = formatRatio(values[0] / values[1])
			}
			row = append(row, ratio)
		}
		text := ""
		if limited {
			text = "at most " + m.format(limit)
			if v, ok := s.Median[tools[0].Label][m.metric]; !ok {
				text += "  NOT MEASURED"
			} else if v > limit {
				text += "  EXCEEDED"
			}
		}
		rows = append(rows, append(row, text))
	}
	return rows
}

// write writes the report as JSON.
func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// findFailure returns an error if a tool has failed or, with check, if the first tool exceeds a budget.
func (r *report) findFailure(check bool) error {
	failed, exceeded := 0, 0
	for _, s := range r.Scenarios {
		failed += len(s.Failed)
		exceeded += s.exceeded
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d scenarios failed", failed)
	case check && exceeded > 0:
		return fmt.Errorf("%d budgets exceeded", exceeded)
	}
	return nil
}
