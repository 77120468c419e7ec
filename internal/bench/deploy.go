package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/nixbench/nixbench/internal/bench/deployments"
)

// benchDeploy measures deployments to the machines of a lab, with one program or with two in turn.
func benchDeploy(ctx context.Context, dir string, args []string) error {
	set := flag.NewFlagSet("deploy", flag.ContinueOnError)
	o := deployments.Options{Dir: dir, Out: os.Stdout, Progress: os.Stderr}
	set.IntVar(&o.Machines, "machines", 10, "start `N` machines")
	set.IntVar(&o.Repeat, "repeat", 3, "run each scenario `N` times, and print medians")
	set.StringVar(&o.Scenarios, "scenario", "", "run only these scenarios: `NAMES` between commas (default: all)")
	set.StringVar(&o.Program, "program", "", "measure this `BINARY` of nixbench (default: build it from these sources)")
	set.StringVar(&o.Against, "against", "", "run this `BINARY` of nixbench in turn with the first one, and print ratios")
	set.StringVar(&o.AgainstCommand, "against-command", "", "the same with a command `LINE` of sh. Its variables: HIVE, the folder of\nhive.nix; GOAL: switch, upload-keys, push or build; ON: the nodes, * or a name")
	set.IntVar(&o.Load, "load", 0, "run `N` busy loops at the same time; the budgets of wall times double")
	set.IntVar(&o.Generations, "generations", 0, "first give the nodes `N` generations of the system profile")
	set.IntVar(&o.Size, "size", 300, "size of the large path that copy-one and copy-all copy, in `MB`")
	set.StringVar(&o.JSON, "json", "", "write the figures of all runs to this `FILE`")
	set.BoolVar(&o.Check, "check", false, "exit with 1 if a budget is exceeded")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return deployments.Run(ctx, o)
}
