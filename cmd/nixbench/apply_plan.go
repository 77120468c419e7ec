package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
)

// isPlanFile reports whether the argument of apply is a plan file and not a goal. This is so if it is no goal, and either looks
// like a path or is an existing file.
func isPlanFile(arg string) bool {
	return !slices.Contains(applyGoals, arg) && (strings.ContainsAny(arg, "/.") || durable.Exists(arg))
}

// fixedByPlan are the flags that cannot be set when a plan is applied, because the plan contains their values.
var fixedByPlan = []string{"on", "set", "no-keys", "recreate", "no-drain", "max-unavailable",
	"keep-going", "specialisation", "reboot", "build-on-target", "no-build-on-target", "keep-result"}

// runApplyPlan executes a saved plan.
func runApplyPlan(a *app, file string, flags applyFlags, set *pflag.FlagSet) error {
	for _, name := range append(flags.drain.names(), fixedByPlan...) {
		if f := set.Lookup(name); f != nil && f.Changed {
			return failure.NewUsage("apply %s: --%s and a plan exclude each other: the plan has its own arguments", file, name)
		}
	}
	r, err := a.newRequest(flags.fleetFlags)
	if err != nil {
		return err
	}
	saved, err := r.ReadPlan(file)
	if err != nil {
		return err
	}
	args := saved.Arguments
	a.sets = args.Sets
	flags.on, flags.noKeys, flags.recreate, flags.maxUnavailable = args.On, args.NoKeys, args.Recreate, args.MaxUnavailable
	flags.drain.noDrain = args.NoDrain
	for name, value := range flags.drain.allow {
		*value = slices.Contains(args.DrainAllowed, name)
	}
	return runApply(a, node.Switch, flags, &saved, file)
}
