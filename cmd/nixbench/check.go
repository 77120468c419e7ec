package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

const checkLong = `Check that every node is up without failed units and runs the engine of the
hive, and that the cluster of the nodes is in the state that the hive describes.
--deep also runs test workloads, and removes them afterwards.

The exit code is 9 if a condition does not hold within --timeout.`

type checkFlags struct {
	fleetFlags
	deep    bool
	timeout time.Duration
}

func checkCommand(a *app) *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify that the cluster works",
		Long:  withEngineHelp(checkLong, func(h engine.Help) string { return h.Check }),
		Example: `  nixbench check
  nixbench check --deep --timeout 2m`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runCheck(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&flags.deep, "deep", false, "also run test workloads in the cluster")
	f.DurationVar(&flags.timeout, "timeout", time.Minute, "how long to wait until all conditions hold")
	flags.add(f)
	return cmd
}

func runCheck(a *app, flags checkFlags) error {
	if flags.timeout <= 0 {
		return failure.NewUsage("--timeout must be greater than 0 (it is %v), such as 30s", flags.timeout)
	}
	s, err := a.openNodes(flags.fleetFlags, deploy.RemoteNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(a.ctx, flags.timeout)
	defer cancel()
	results, err := s.Check(ctx, engine.CheckOptions{Deep: flags.deep})
	if results != nil {
		a.view.Result(results, func(w io.Writer) { writeChecks(w, results) })
	}
	return err
}

// writeChecks writes a table with each condition of the cluster, whether it holds, and after which time.
func writeChecks(w io.Writer, results []check.Result) {
	table := []ui.Row{{"CONDITION", "", "AFTER"}}
	for _, r := range results {
		row := ui.Row{r.Name, "ok", fmt.Sprintf("%.1fs", r.Seconds)}
		switch {
		case r.Missing != "":
			row[1] = "FAILED"
		case !r.OK:
			row[1], row[2] = "not checked", ""
		}
		table = append(table, row)
	}
	ui.Table(w, table)
}
