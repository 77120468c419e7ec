package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/nixeval"
)

const startLong = `Start the machines that nixbench has booted before and that are off, paused or
crashed, and wait until their systems have started. Nothing is deployed.

In a cluster, the nodes that others need, such as control planes, are started
first. If one of them is not ready after --timeout, the others stay off.`

func startCommand(a *app) *cobra.Command {
	var flags powerFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start machines that are off",
		Long:  startLong,
		Example: `  nixbench start
  nixbench start --on worker-3`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error {
		return changePower(a, "start", flags, func(*machine.Power, []nixeval.Node) error { return nil }, (*machine.Power).Start)
	})
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.DurationVar(&flags.timeout, "timeout", 5*time.Minute, "time limit for a machine to become ready")
	return cmd
}
