package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
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

func (a *app) checkCommand() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify that the cluster works",
		Long:  withEngineHelp(checkLong, func(h engine.Help) string { return h.Check }),
		Example: `  nixbench check
  nixbench check --deep --timeout 2m`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.check(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&flags.deep, "deep", false, "also run test workloads in the cluster")
	f.DurationVar(&flags.timeout, "timeout", time.Minute, "how long to wait until all conditions hold")
	flags.add(f)
	return cmd
}

func (a *app) check(flags checkFlags) error {
	if flags.timeout <= 0 {
		return newUsageError("--timeout must be greater than 0 (it is %v), such as 30s", flags.timeout)
	}
	_, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if nodes, err = a.selectRemoteNodes(hive, nodes); err != nil {
		return err
	}
	conns := a.newFleet(hive, flags.fleetFlags, nil)
	defer conns.Close()
	conditions := inspect.NodeConditions(conns, nodes, flags.parallel, nil, nil)
	clusterEngines, err := a.engines().Of(hive, conns)
	if err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	look := func(e engine.Engine) check.Look { return engine.LookAt(e, names...) }
	conditions = append(conditions, inspect.EngineConditions(clusterEngines, nodes, flags.parallel, engine.CheckOptions{Deep: flags.deep}, look)...)
	if flags.deep && len(clusterEngines) == 0 {
		return newUsageError("--deep requires a cluster, and the nodes of the hive are not members of one")
	}
	ctx, cancel := context.WithTimeout(a.ctx, flags.timeout)
	defer cancel()
	results, err := check.Await(ctx, conditions, a.sendEvent)
	a.view.Result(results, func(w io.Writer) { writeChecks(w, results) })
	return err
}

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
