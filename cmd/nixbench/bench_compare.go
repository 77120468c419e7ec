package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/export"
	"github.com/nixbench/nixbench/bench/results"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
)

func (a *app) benchCompareCommand() *cobra.Command {
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
		x, err := a.findSweep(args[:1])
		if err != nil {
			return err
		}
		y, err := a.findSweep(args[1:])
		if err != nil {
			return err
		}
		return a.compareSweeps(x, y)
	})
	return cmd
}

func (a *app) compareSweeps(x, y *bench.Store) error {
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
}

func (a *app) benchExportCommand() *cobra.Command {
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
			return newUsageError("bench export: --trial NUMBER and --format swf require each other")
		}
		st, err := a.findSweep(args)
		if err != nil {
			return err
		}
		return a.exportSweep(st, format, out, trial)
	})
	f := cmd.Flags()
	f.SortFlags = false
	addChoice(f, &format, "format", export.Formats, "`FORMAT`: csv, gobench, swf or archive")
	f.StringVarP(&out, "output", "o", "", "write to `FILE` instead of stdout")
	f.IntVar(&trial, "trial", 0, "the `NUMBER` of the trial, with --format swf")
	return cmd
}

func (a *app) exportSweep(st *bench.Store, format, out string, trial int) error {
	if out == "" && format == "archive" && term.IsTerminal(int(os.Stdout.Fd())) {
		return newUsageError("bench export: an archive is binary and stdout is a terminal; use -o FILE")
	}
	if untracked := st.Sweep.Untracked; format == "archive" && len(untracked) > 0 {
		a.note("the archive contains %d files that git does not track: %s", len(untracked), strings.Join(untracked, ", "))
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

// writeFile writes a file completely or not at all.
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

func (a *app) benchReplayCommand() *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "replay ARCHIVE",
		Short: "Repeat a sweep from its archive",
		Long: `Repeat a sweep: build its systems from the frozen source, report which store
paths are identical, execute the same trials in the same order, and evaluate the
claims. ARCHIVE is a file of nixbench bench export --format archive. The same
command continues the new sweep after an interrupt.`,
		Example: `  nixbench bench replay sweep.tar.gz
  nixbench bench show ./sweep-replay`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if folder == "" {
			folder = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(args[0]), ".gz"), ".tar") + "-replay"
		}
		return a.benchReplay(args[0], folder)
	})
	cmd.Flags().StringVar(&folder, "dir", "", "create the new sweep in `FOLDER` (default: the name of the archive with -replay, in the working directory)")
	return cmd
}

func (a *app) benchReplay(archive, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	lock, err := state.Dir(filepath.Join(filepath.Dir(folder), ".nixbench", "replay")).Lock(a.ctx, state.Self("bench replay"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	st, err := bench.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(folder); err == nil {
			return newUsageError("bench replay: %s exists and has no complete sweep; remove it, or choose another folder with --dir", folder)
		}
		st, err = a.freezeReplay(archive, folder)
	}
	if err != nil {
		return err
	}
	return a.runSweep(st)
}

// freezeReplay extracts an archive, builds its systems, and compares them with those of the original.
func (a *app) freezeReplay(archive, folder string) (*bench.Store, error) {
	f, _, err := durable.Open(archive)
	if err != nil {
		return nil, newUsageError("bench replay: %w", err)
	}
	defer f.Close()
	st, err := a.extractReplay(f, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", archive, err), os.RemoveAll(folder)) // no machine exists
	}
	return st, nil
}

func (a *app) extractReplay(f io.Reader, folder string) (*bench.Store, error) {
	if err := bench.ReadArchive(f, folder); err != nil {
		return nil, newUsageError("%w", err)
	}
	original, err := bench.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(folder, "sweep.json")); err != nil { // until everything is built
		return nil, err
	}
	if err := durable.Write(filepath.Join(folder, ".gitignore"), []byte("*\n")); err != nil { // the folder has keys of the cluster
		return nil, err
	}
	now := time.Now()
	sweep := original.Sweep
	sweep.RepeatOf, sweep.ID, sweep.Created, sweep.Nixbench, sweep.Host = sweep.ID, bench.NewID(sweep.Name, now), now.UTC(), readBuildVersion().Version, a.readHost()
	sweep.Configurations = append([]bench.Configuration{}, sweep.Configurations...)
	if err := a.buildSweep(folder, &sweep); err != nil {
		return nil, err
	}
	same, all := 0, 0
	for i, c := range sweep.Configurations {
		changed, total := bench.CompareClosures(original.Sweep.Configurations[i].Closure, c.Closure)
		same, all = same+total-len(changed), all+total
	}
	a.note("%d of %d store paths identical to those of %s", same, all, sweep.RepeatOf)
	return bench.Repeat(folder, sweep)
}
