package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
)

func (a *app) benchListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sweeps",
		Long:  "List the sweeps of the hive, the oldest first.",
		Args:  cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error {
		all, err := a.listSweeps()
		if err != nil {
			return err
		}
		type line struct {
			ID string `json:"id"`
			bench.Progress
		}
		var lines []line
		rows := []ui.Row{{"SWEEP", "TRIALS", "DONE", "VALID", "SUSPECT", "INVALID", "FAILED"}}
		for _, st := range all {
			p, err := st.Progress()
			if err != nil {
				return err
			}
			lines = append(lines, line{st.Sweep.ID, p})
			rows = append(rows, ui.Row{st.Sweep.ID, fmt.Sprint(p.Trials), fmt.Sprint(p.Done), fmt.Sprint(p.States[bench.Valid]),
				fmt.Sprint(p.States[bench.Suspect]), fmt.Sprint(p.States[bench.Invalid]), fmt.Sprint(p.States[bench.Failed])})
		}
		a.view.Result(lines, func(w io.Writer) {
			if len(lines) == 0 {
				fmt.Fprintln(w, "there are no sweeps yet; nixbench bench run executes a benchmark")
				return
			}
			ui.Table(w, rows)
		})
		return nil
	})
	return cmd
}

// listSweeps opens the sweeps of the hive.
func (a *app) listSweeps() ([]*bench.Store, error) {
	if _, _, err := a.surveyForState(); err != nil {
		return nil, err
	}
	return bench.List(a.sweepsFolder())
}

// findSweep opens the sweep that an argument names; without one, the last.
func (a *app) findSweep(args []string) (*bench.Store, error) {
	if len(args) > 0 && strings.Contains(args[0], "/") {
		st, err := bench.Open(args[0])
		if err != nil {
			return nil, newUsageError("%s is not the folder of a sweep: %w", args[0], err)
		}
		return st, nil
	}
	all, err := a.listSweeps()
	if err != nil {
		return nil, err
	}
	ref := "last"
	if len(args) > 0 {
		ref = args[0]
	}
	st, err := bench.Find(all, ref)
	if err != nil {
		return nil, newUsageError("%w", err)
	}
	return st, nil
}

func (a *app) benchShowCommand() *cobra.Command {
	var html, trials bool
	var out string
	cmd := &cobra.Command{
		Use:   "show [SWEEP]",
		Short: "Show the results of a sweep, or write them as an HTML page",
		Long: `Show the results of a sweep: the median of each metric for each cell, the noise,
the ratios between levels, the claims, and what limits the scheduler. With
--html, write them as one HTML page.

SWEEP is the beginning of a sweep's id, "last" (the default), or the folder of a
sweep.`,
		Example: `  nixbench bench show
  nixbench bench show last --html -o results.html`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if !html && out != "" {
			return newUsageError("bench show: -o requires --html")
		}
		st, err := a.findSweep(args)
		if err != nil {
			return err
		}
		if html {
			return a.writeSweepPage(st, out)
		}
		return a.showSweep(st, trials)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&trials, "trials", false, "also show each trial and its requests")
	f.BoolVar(&html, "html", false, "write an HTML page")
	f.StringVarP(&out, "output", "o", "", "write the page to `FILE` (default: the id of the sweep with .html)")
	return cmd
}

// writeSweepPage writes the page of a sweep.
func (a *app) writeSweepPage(st *bench.Store, out string) error {
	in, err := analyseWithTimes(st)
	if err != nil {
		return err
	}
	if out == "" {
		out = st.Sweep.ID + ".html"
	}
	parts, err := splitHollow(st.Sweep, in)
	if err != nil {
		return err
	}
	for i, part := range parts {
		file := out
		if i > 0 {
			file = strings.TrimSuffix(out, ".html") + "-hollow.html"
		}
		if err := writeFile(file, func(w io.Writer) error { return page.Render(w, part) }); err != nil {
			return err
		}
		a.view.Result(file, func(w io.Writer) { fmt.Fprintln(w, file) })
	}
	return nil
}

// showSweep shows the results of a sweep.
func (a *app) showSweep(st *bench.Store, withTrials bool) error {
	in, err := analyseSweep(st)
	if err != nil {
		return err
	}
	rows := []ui.Row{{"TRIAL", "BLOCK", "CELL", "STATE", "JOBS/S", "P50", "P99", "MAKESPAN", "CLOCK", "REASON"}}
	attempts := []bench.Attempt{}
	for _, t := range st.Sweep.Trials {
		all, err := st.Attempts(t.Number)
		if err != nil {
			return err
		}
		for _, at := range all {
			attempts = append(attempts, at)
			rows = append(rows, ui.Row{fmt.Sprint(t.Number), fmt.Sprint(t.Block), t.String(), at.State, metricText(at, "throughput"),
				metricText(at, "schedule_p50"), metricText(at, "schedule_p99"), makespanText(at), clockText(at), strings.Join(at.Reasons, "; ")})
		}
	}
	p, err := st.Progress()
	if err != nil {
		return err
	}
	parts, err := splitHollow(st.Sweep, in)
	if err != nil {
		return err
	}
	levels, err := compareLevels(st)
	if err != nil {
		return err
	}
	calibrations := calibrateWithin(st.Sweep, in)
	result := map[string]any{
		"sweep": st.Sweep, "progress": p, "attempts": attempts, "claims": in.Claims, "results": summariseParts(st.Sweep, parts), "systems": levels,
		"calibration": calibrations,
	}
	a.view.Result(result, func(w io.Writer) {
		for _, part := range parts {
			for _, n := range part.Notes {
				fmt.Fprintln(w, n)
			}
			for _, t := range page.Text(part) {
				fmt.Fprintf(w, "%s\n\n", t.Title)
				if t.Note != "" {
					fmt.Fprintf(w, "%s\n\n", t.Note)
				}
				if len(t.Rows) == 0 {
					continue
				}
				table := []ui.Row{ui.Row(t.Head)}
				for _, r := range t.Rows {
					table = append(table, ui.Row(r))
				}
				ui.Table(w, table)
				fmt.Fprintln(w)
			}
		}
		showCalibration(w, calibrations)
		if withTrials {
			ui.Table(w, rows)
			if requests := requestRows(attempts); requests != nil {
				fmt.Fprintln(w)
				ui.Table(w, requests)
			}
		}
	})
	return nil
}

// partSummary is the summary of the cells with hollow nodes, or of those with machines.
type partSummary struct {
	Hollow bool     `json:"hollow"`
	Notes  []string `json:"notes"`
	page.Summary
}

func summariseParts(s bench.Sweep, parts []page.Input) []partSummary {
	out := []partSummary{}
	for _, p := range parts {
		hollow := len(p.Cells) > 0 && isHollow(s, p.Cells[0])
		out = append(out, partSummary{hollow, append([]string{}, p.Notes...), page.Summarise(p)})
	}
	return out
}

// makespanText returns the makespan of an attempt, or that not all jobs finished.
func makespanText(at bench.Attempt) string {
	if at.Counts() && !at.Result.Complete {
		return "did not finish"
	}
	return metricText(at, "makespan")
}

// clockText returns the error of the difference of the clocks, or "-".
func clockText(at bench.Attempt) string {
	if at.Clock == nil {
		return "-"
	}
	return fmt.Sprintf("±%.2g ms", 1000*at.Clock.Error)
}

// metricText returns a metric of an attempt, or "-".
func metricText(at bench.Attempt, name string) string {
	if v, ok := at.Result.Metrics[name]; ok {
		return fmt.Sprintf("%.4g", v)
	}
	return "-"
}
