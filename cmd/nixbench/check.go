package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
)

func checkCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var deep, noHealth bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify that the cluster works",
		Long: withEngineHelp(`Check that every node is up without failed units and runs the engine of the
hive, that the cluster of the nodes is in the state that the hive describes, and
that deployment.healthChecks pass.

The exit code is 9 if a condition does not hold within --timeout.`, func(h engine.Help) string { return h.Check }),
		Example: `  nixbench check --deep --timeout 2m`,
	}
	cmd.RunE = a.withSession("", &flags, deploy.RemoteNodes, func(s *deploy.Session, _ []string) error {
		ctx, cancel := context.WithTimeout(a.ctx, timeout)
		defer cancel()
		results, err := s.Check(ctx, engine.CheckOptions{Deep: deep}, !noHealth)
		if results != nil {
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
			a.view.Result(results, func(w io.Writer) { ui.Table(w, table) })
		}
		return err
	})
	f := cmd.Flags()
	f.BoolVar(&deep, "deep", false, "also run test workloads in the cluster, and remove them afterwards")
	f.BoolVar(&noHealth, "no-health-checks", false, noHealthHelp)
	addTimeouts(f, timeLimit{"check", &timeout, time.Minute, time.Millisecond, "until all conditions hold"})
	flags.add(f)
	flags.addSkip(f)
	return cmd
}
