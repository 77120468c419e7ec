package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

func runsCommand(a *app) *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "runs [RUN]",
		Short: "List recorded runs, or show one",
		Long: `List the recorded runs of the cluster, the newest first, or show the result of
each node in one of them. RUN is the beginning of a run's name, or "last".`,
		Example: `  nixbench runs last --log web-1`,
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 && log != "" {
			return failure.NewUsage("runs: --log needs a run, such as last")
		}
		return nil
	}
	cmd.RunE = a.withSession("", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, args []string) error {
		if len(args) == 0 {
			list, err := runs.List(s.Dir)
			if err == nil && len(list) == 0 {
				err = failure.WithHint(fmt.Errorf("there are no runs yet in %s", s.Dir), "nixbench apply records one")
			}
			if err == nil {
				a.view.Result(list, func(w io.Writer) { writeRuns(w, list) })
			}
			return err
		}
		run, err := runs.Open(s.Dir, args[0])
		switch {
		case err != nil:
			return err
		case log != "":
			return showLog(a, run, log)
		}
		return showRun(a.view, run)
	})
	cmd.Flags().StringVar(&log, "log", "", "print the output of `NODE` during the run")
	return cmd
}

func writeRuns(w io.Writer, list []runs.Summary) {
	rows := []ui.Row{{"RUN", "STATUS", "TOOK", "NODES"}}
	for _, r := range list {
		took := "-"
		if d, ended := r.Took(); ended {
			took = d.Round(100 * time.Millisecond).String()
		}
		goal := node.Goal(strings.TrimPrefix(r.Command, "apply "))
		var nodes []string
		for _, o := range slices.Sorted(maps.Keys(r.Nodes)) {
			nodes = append(nodes, fmt.Sprintf("%d %s", r.Nodes[o], goal.Describe(o)))
		}
		rows = append(rows, ui.Row{r.ID, string(r.Status), took, strings.Join(nodes, ", ")})
	}
	ui.Table(w, rows)
}

func showRun(view *ui.View, run *runs.Run) error {
	changes, err := run.Changes()
	rows := []ui.Row{{"NODE", "OUTCOME", "SYSTEM", "ERROR"}}
	for _, n := range run.Nodes {
		problem, _, _ := strings.Cut(n.Error, "\n")
		rows = append(rows, ui.Row{n.Node, string(n.Outcome), n.Path, problem})
	}
	view.Result(run, func(w io.Writer) {
		fmt.Fprintf(w, "run       %s\nstatus    %s\ncommand   nixbench %s\nhive      %s %s\n",
			run.ID, run.Status(), strings.Join(run.Args, " "), run.Hive, run.Revision)
		if run.Scheduler != "" {
			fmt.Fprintf(w, "scheduler %s\n", run.Scheduler)
		}
		fmt.Fprintf(w, "by        %s\nrecord    %s\n\n", run.Holder.Process(), run.Folder())
		ui.Table(w, rows)
		writeDiffs(w, changes, false)
		if run.Error != "" {
			fmt.Fprintln(w)
			ui.WriteText(w, "error: "+run.Error)
		}
	})
	return err
}

func showLog(a *app, run *runs.Run, node string) error {
	events, _, err := run.Events()
	if err != nil {
		return err
	}
	text := runs.Log(events, node)
	if text == "" {
		if !slices.ContainsFunc(run.Nodes, func(n state.NodeResult) bool { return n.Node == node }) {
			return failure.WithHint(failure.NewUsage("node %[2]s was not part of run %[1]s", run.ID, node), "nixbench runs "+run.ID+" lists its nodes")
		}
		a.sink.Note("%s has no log of run %s", node, run.ID)
	}
	a.view.Result(text, func(w io.Writer) { fmt.Fprint(w, text) })
	return nil
}

func explainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [RUN]",
		Short: "Show how a run spent its time",
		Long: `Show how a run spent its time: per phase, per node, and on the critical path,
the chain of phases that determined its end. The time of the check is listed by
condition. RUN is the beginning of a run's name; the default is the last run.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.withSession("", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, args []string) error {
			run, err := runs.Open(s.Dir, cmp.Or(strings.Join(args, ""), "last"))
			if err != nil {
				return err
			}
			report, err := explain.ExplainRun(run)
			if err != nil {
				return err
			}
			a.view.Result(report, report.Write)
			return nil
		}),
	}
}
