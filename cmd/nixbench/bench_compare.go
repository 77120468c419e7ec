package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/export"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

func benchCompareCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare SWEEP SWEEP",
		Short: "Compare the results of two sweeps, and show how they differ",
		Long: `Compare the medians of the cells that two sweeps have in common, and list in
what else the sweeps differ, such as systems, workloads or the computer. If that
is more than one thing, the comparison is confounded: a difference between the
results has no single cause.

SWEEP is the beginning of a sweep's id, "last", or the folder of a sweep.`,
		Example: `  nixbench bench compare 20261123T1200 last`,
		Args:    cobra.ExactArgs(2),
	}
	cmd.RunE = a.withView(func(args []string) error {
		x, err := findSweep(a, args[0])
		if err != nil {
			return err
		}
		y, err := findSweep(a, args[1])
		if err != nil {
			return err
		}
		c, err := results.Compare(x, y)
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
	})
	return cmd
}

func benchExportCommand(a *app) *cobra.Command {
	format := "csv"
	var out string
	var trial int
	cmd := &cobra.Command{
		Use:   "export [SWEEP]",
		Short: "Write the results of a sweep for another program",
		Long: `Write the results of a sweep for another program.

Formats:
  csv       one row for each trial and metric (the default)
  gobench   the benchmark format of Go, for benchstat
  swf       the Standard Workload Format: the jobs of one trial (--trial)
  archive   everything from which nixbench bench replay repeats the sweep, with
            the results, as tar.gz; it contains no secrets of the cluster`,
		Example: `  nixbench bench export > results.csv
  nixbench bench export last --format archive -o sweep.tar.gz`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if (format == "swf") != (trial > 0) {
			return failure.NewUsage("bench export: --trial NUMBER and --format swf require each other")
		}
		st, err := findSweep(a, args...)
		if err != nil {
			return err
		}
		return exportSweep(a, st, format, out, trial)
	})
	f := cmd.Flags()
	f.SortFlags = false
	addChoice(f, &format, "format", export.Formats, "`FORMAT`: csv, gobench, swf or archive")
	f.StringVarP(&out, "output", "o", "", "write to `FILE` instead of stdout")
	f.IntVar(&trial, "trial", 0, "the `NUMBER` of the trial, with --format swf")
	return cmd
}

// exportSweep writes the results of a sweep in a format to the file out, or to stdout if out is empty.
func exportSweep(a *app, st *bench.Store, format, out string, trial int) error {
	if out == "" && format == "archive" && term.IsTerminal(int(os.Stdout.Fd())) {
		return failure.NewUsage("bench export: an archive is binary and stdout is a terminal; use -o FILE")
	}
	if untracked := st.Sweep.Untracked; format == "archive" && len(untracked) > 0 {
		event.Sink(a.sendEvent).Note("the archive contains %d files that git does not track: %s", len(untracked), strings.Join(untracked, ", "))
	}
	write := func(w io.Writer) error { return export.Write(w, st, format, trial) }
	if out != "" {
		return writeFile(out, write)
	}
	var failed error
	stdout := io.Writer(os.Stdout)
	if term.IsTerminal(int(os.Stdout.Fd())) {
		stdout = ui.Printable(stdout)
	}
	a.view.Pause(func() { failed = write(stdout) })
	return failed
}

// writeFile writes a file completely, or not at all after an error. The function write writes the content.
func writeFile(file string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
