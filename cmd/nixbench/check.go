package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nixbench/nixbench/deploy/rollout"

	"github.com/nixbench/nixbench/deploy/inspect"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/nixeval"
)

// engines are the engines that nixbench supports.
var engines = rollout.Engines{
	kubernetes.Kind: func(c engine.Cluster) engine.Engine { return kubernetes.New(c) },
}

const checkLong = `Prove that the cluster works: that every node is up with no failed unit, and what
the nodes run together is as the hive has it. With Kubernetes: the API is healthy,
exactly the hive's nodes are registered and Ready, system pods run.

--deep starts work of its own, and removes it again: with Kubernetes a pod on one
worker, which another worker's pod reaches directly and through a Service.

Conditions are looked at in order, and waited for, --timeout in all. The exit code
is 9 if one does not come to hold.`

type checkFlags struct {
	fleetFlags
	deep    bool
	timeout time.Duration
}

func (a *app) checkCommand() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Prove that the cluster works",
		Long:  checkLong,
		Example: `  nixbench check
  nixbench check --deep --timeout 2m`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.check(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&flags.deep, "deep", false, "also start work in the cluster")
	f.DurationVar(&flags.timeout, "timeout", time.Minute, "how long to wait for what does not hold yet")
	flags.add(f)
	return cmd
}

func (a *app) check(flags checkFlags) error {
	if flags.timeout <= 0 {
		return usagef("--timeout %v: expected more than 0, such as 30s", flags.timeout)
	}
	_, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if nodes, err = a.remoteNodes(hive, nodes, flags.on); err != nil {
		return err
	}
	conns := a.newFleet(hive, flags.fleetFlags, nil)
	defer conns.Close()
	conditions := inspect.NodeConditions(conns, nodes, flags.parallel, nil, nil)
	clusterEngines, err := engines.Of(hive, conns)
	if err != nil {
		return err
	}
	for _, e := range clusterEngines {
		conditions = append(conditions, engine.Conditions(e, flags.deep)...)
	}
	conditions = append(conditions, inspect.MemberConditions(clusterEngines, nodes, flags.parallel)...)
	if flags.deep && len(clusterEngines) == 0 {
		return usagef("--deep: the hive's nodes run nothing together, so there is nothing to be started")
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
			row[1], row[2] = "not looked at", ""
		}
		table = append(table, row)
	}
	ui.Table(w, table)
}

// findEngine returns the hive's engine of type E, and whether the hive has one.
func findEngine[E engine.Engine](hive *nixeval.Hive, conns *fleet.Fleet) (E, bool, error) {
	var none E
	clusterEngines, err := engines.Of(hive, conns)
	if err != nil {
		return none, false, err
	}
	for _, e := range clusterEngines {
		if found, ok := e.(E); ok {
			return found, true, nil
		}
	}
	return none, false, nil
}
