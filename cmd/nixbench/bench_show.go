package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/results"
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

// writeSweepPage writes the page of a sweep, and a page of its own for cells with hollow nodes beside machines.
func (a *app) writeSweepPage(st *bench.Store, out string) error {
	parts, err := results.ReadParts(st)
	if err != nil {
		return err
	}
	out = cmp.Or(out, st.Sweep.ID+".html")
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
	report, err := results.NewReport(st)
	if err != nil {
		return err
	}
	a.view.Result(report, func(w io.Writer) {
		for _, t := range report.Tables(withTrials) {
			printTable(w, t)
			fmt.Fprintln(w)
		}
	})
	return nil
}

// printTable writes a table after its title and its note.
func printTable(w io.Writer, t page.Table) {
	if title := strings.Trim(t.Title+"\n\n"+t.Note, "\n"); title != "" {
		fmt.Fprintf(w, "%s\n", title)
	}
	if len(t.Rows) == 0 {
		return
	}
	if t.Title+t.Note != "" {
		fmt.Fprintln(w)
	}
	rows := []ui.Row{t.Head}
	for _, r := range t.Rows {
		rows = append(rows, r)
	}
	ui.Table(w, rows)
}
