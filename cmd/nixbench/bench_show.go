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
	"github.com/nixbench/nixbench/bench/sweeps"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/failure"
)

func benchListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sweeps",
		Long:  "List the sweeps of the hive, the oldest first.",
	}
	cmd.RunE = withSweeps(a, func(s *sweeps.Sweeps, _ string) error {
		all, err := s.List(a.ctx)
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
			p, err := st.ReadProgress()
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

// findSweep opens the sweep that an argument names. Without an argument, it opens the last sweep.
func findSweep(a *app, args ...string) (*bench.Store, error) {
	s, err := newSweeps(a)
	if err != nil {
		return nil, err
	}
	return s.Find(a.ctx, cmp.Or(strings.Join(args, ""), "last"))
}

func benchShowCommand(a *app) *cobra.Command {
	var html, trials bool
	var out string
	cmd := &cobra.Command{
		Use:   "show [SWEEP]",
		Short: "Show the results of a sweep, or write them as an HTML page",
		Long: `Show the results of a sweep: the claims, the mean of each metric for each cell,
the ratios between levels, the noise, what limits the scheduler, and why trials
are not valid. With --html, write them as one HTML page. The exit code is 9 if a
claim does not hold.

SWEEP is the beginning of a sweep's id, "last" (the default), or the folder of a
sweep.`,
		Example: `  nixbench bench show
  nixbench bench show last --html -o results.html`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if !html && out != "" {
			return failure.NewUsage("bench show: -o requires --html")
		}
		st, err := findSweep(a, args...)
		if err != nil {
			return err
		}
		if html {
			return writeSweepPage(a, st, out)
		}
		report, err := results.NewReport(st)
		if err != nil {
			return err
		}
		tables := report.Tables()
		if trials {
			tables = append(tables, report.TrialTables()...)
		}
		showReport(a, report, tables)
		return report.CheckClaims()
	})
	f := cmd.Flags()
	f.BoolVar(&trials, "trials", false, "also show each trial and its requests")
	f.BoolVar(&html, "html", false, "write an HTML page")
	f.StringVarP(&out, "output", "o", "", "write the page to `FILE`, - for stdout (default: the id of the sweep with .html)")
	return cmd
}

// writeSweepPage writes the HTML page with the results of a sweep. If the sweep has cells with hollow (simulated) nodes besides
// cells with machines, it writes another page for these.
func writeSweepPage(a *app, st *bench.Store, out string) error {
	parts, err := results.ReadParts(st)
	if err != nil {
		return err
	}
	if out == "-" && len(parts) > 1 {
		return failure.NewUsage("bench show: the sweep has two pages, of machines and of hollow nodes, and stdout is one file; use -o FILE")
	}
	out = cmp.Or(out, st.Sweep.ID+".html")
	for i, part := range parts {
		file := out
		if i > 0 {
			file = strings.TrimSuffix(out, ".html") + "-hollow.html"
		}
		if err := writeFile(a, file, func(w io.Writer) error { return page.Render(w, part) }); err != nil || out == "-" {
			return err
		}
		a.view.Result(file, func(w io.Writer) { fmt.Fprintln(w, file) })
	}
	return nil
}

func showReport(a *app, report results.Report, tables []page.Table) {
	a.view.Result(report, func(w io.Writer) {
		for _, t := range tables {
			printTable(w, t)
			fmt.Fprintln(w)
		}
	})
}

func printTable(w io.Writer, t page.Table) {
	if title := strings.Trim(t.Title+"\n\n"+t.Note, "\n"); title != "" {
		for _, line := range strings.Split(title, "\n") {
			ui.WriteText(w, line, "  ")
		}
	}
	if len(t.Rows) == 0 {
		return
	}
	if t.Title+t.Note != "" {
		fmt.Fprintln(w)
	}
	ui.Table(w, append([]ui.Row{t.Head}, t.Rows...))
}
