package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/export"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/bench/sweeps"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

func benchListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List sweeps",
		Long:  "List the sweeps of the hive, the oldest first.",
		RunE: withSweeps(a, func(s *sweeps.Sweeps, _ string) error {
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
		}),
	}
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
are not valid. The exit code is 9 if a claim does not hold.

SWEEP is the beginning of a sweep's id, "last" (the default), or the folder of a
sweep.`,
		Example: `  nixbench bench show last --html -o results.html`,
		Args:    cobra.MaximumNArgs(1),
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
		ui.WriteText(w, title)
	}
	if len(t.Rows) == 0 {
		return
	}
	if t.Title+t.Note != "" {
		fmt.Fprintln(w)
	}
	ui.Table(w, append([]ui.Row{t.Head}, t.Rows...))
}

func benchCompareCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "compare SWEEPS SWEEPS",
		Short: "Compare the results of sweeps, and show how they differ",
		Long: `Compare the means of the cells that sweeps have in common, and list in what
else the sweeps differ, such as systems, workloads or the computer. If that is
more than one thing, the comparison is confounded: a difference between the
results has no single cause.

SWEEPS is one sweep, or several with commas in between. A sweep is the beginning
of its id, "last", or its folder. One sweep is one observation, because all its
trials share the state of the computer on its day: with fewer than three sweeps
on each side, the command prints ratios without an answer.`,
		Example: `  nixbench bench compare 20261101,20261102,20261103 20261108,20261109,20261110`,
		Args:    cobra.ExactArgs(2),
		RunE: a.withView(func(args []string) error {
			var sides [2][]*bench.Store
			for i, arg := range args {
				for _, ref := range strings.Split(arg, ",") {
					st, err := findSweep(a, ref)
					if err != nil {
						return err
					}
					sides[i] = append(sides[i], st)
				}
			}
			c, err := results.Compare(sides[0], sides[1])
			if err != nil {
				return err
			}
			a.view.Result(c, func(w io.Writer) {
				fmt.Fprint(w, c)
				for _, t := range c.Tables() {
					fmt.Fprintln(w)
					printTable(w, t)
				}
			})
			return nil
		}),
	}
}

func benchExportCommand(a *app) *cobra.Command {
	var format string
	var out string
	cmd := &cobra.Command{
		Use:   "export [SWEEP]",
		Short: "Write the results of a sweep for another program",
		Long: `Write the results of a sweep for another program.

Formats:
  csv       one row for each trial and metric (the default)
  svg       each drawing of the page as a file, with its values, in the folder
            that -o names
  archive   everything from which nixbench bench replay repeats the sweep, with
            the results, as tar.gz; it contains no secrets of the cluster`,
		Example: `  nixbench bench export last --format archive -o sweep.tar.gz`,
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		st, err := findSweep(a, args...)
		if err != nil {
			return err
		}
		if format == "svg" {
			return writeDrawings(a, st, out)
		}
		out = cmp.Or(out, "-")
		if out == "-" && format == "archive" && term.IsTerminal(int(os.Stdout.Fd())) {
			return failure.NewUsage("bench export: an archive is binary and stdout is a terminal; use -o FILE")
		}
		if untracked := st.Sweep.Untracked; format == "archive" && len(untracked) > 0 {
			a.sink.Note("the archive contains %d files that git does not track: %s", len(untracked), strings.Join(untracked, ", "))
		}
		all, err := st.AllAttempts()
		if err != nil {
			return err
		}
		write := func(w io.Writer) error { return export.WriteCSV(w, st.Sweep, all) }
		if format == "archive" {
			write = st.WriteArchive
		}
		return writeFile(a, out, write)
	})
	f := cmd.Flags()
	addChoice(f, &format, "format", "", []string{"csv", "svg", "archive"}, "`FORMAT`: csv, svg or archive")
	f.StringVarP(&out, "output", "o", "", "write to `FILE` (default: -, stdout); with --format svg: to this folder")
	return cmd
}

func writeDrawings(a *app, st *bench.Store, folder string) error {
	if folder == "" || folder == "-" {
		return failure.NewUsage("bench export: --format svg needs a folder: -o FOLDER")
	}
	parts, err := results.ReadParts(st)
	if err != nil {
		return err
	}
	for i, part := range parts {
		drawings, err := page.Drawings(part)
		if err != nil {
			return err
		}
		to := folder
		if i > 0 {
			to = filepath.Join(folder, "hollow")
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, name := range nixeval.SortedNames(drawings) {
			file := filepath.Join(to, name)
			if err := durable.WriteShared(file, drawings[name]); err != nil {
				return err
			}
			a.view.Result(file, func(w io.Writer) { fmt.Fprintln(w, file) })
		}
	}
	return nil
}

// writeFile writes a file completely, or not at all after an error. The file "-" is stdout. The function write writes the content.
func writeFile(a *app, file string, write func(io.Writer) error) (err error) {
	if file == "-" {
		stdout := io.Writer(os.Stdout)
		if term.IsTerminal(int(os.Stdout.Fd())) {
			stdout = ui.Printable(stdout)
		}
		a.view.Pause(func() { err = write(stdout) })
		return err
	}
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	return durable.WriteShared(file, content.Bytes())
}
