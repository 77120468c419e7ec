package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/bench"
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
	cmd := &cobra.Command{
		Use:   "show [SWEEP]",
		Short: "Show the results of a sweep",
		Long: `Show the results of a sweep: the median of each metric for each cell, and each trial. SWEEP is
the beginning of a sweep's id; the default is the last one.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		st, err := a.findSweep(args)
		if err != nil {
			return err
		}
		return a.showSweep(st)
	})
	return cmd
}

// showSweep shows the results of a sweep.
func (a *app) showSweep(st *bench.Store) error {
	rows := []ui.Row{{"TRIAL", "BLOCK", "CELL", "STATE", "JOBS/S", "P50", "P99", "MAKESPAN", "REASON"}}
	var attempts []bench.Attempt
	for _, t := range st.Sweep.Trials {
		all, err := st.Attempts(t.Number)
		if err != nil {
			return err
		}
		for _, at := range all {
			attempts = append(attempts, at)
			rows = append(rows, ui.Row{fmt.Sprint(t.Number), fmt.Sprint(t.Block), t.String(), at.State, metricText(at, "throughput"),
				metricText(at, "schedule_p50"), metricText(at, "schedule_p99"), metricText(at, "makespan"), strings.Join(at.Reasons, "; ")})
		}
	}
	p, err := st.Progress()
	if err != nil {
		return err
	}
	a.view.Result(map[string]any{"sweep": st.Sweep, "progress": p, "attempts": attempts}, func(w io.Writer) {
		ui.Table(w, rows)
	})
	return nil
}

// metricText returns a metric of an attempt, or "-".
func metricText(at bench.Attempt, name string) string {
	if v, ok := at.Result.Metrics[name]; ok {
		return fmt.Sprintf("%.4g", v)
	}
	return "-"
}
