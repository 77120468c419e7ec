package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
)

const applyLong = `Evaluate and build the systems of nodes, copy them to the nodes, and switch to
them.

Goals:
  switch        activate the new system, and make it the boot default (the
                default goal; with --reboot, boot is the default)
  boot          only make it the boot default
  test          only activate it, until the next boot
  dry-activate  show which units a switch would change, and change nothing
  build         only build, like nixbench build
  push          build and copy
  upload-keys   only upload deployment.keys (or: keys)

FILE is a plan that nixbench plan --out has written. apply switches the nodes of
the plan to exactly the systems in it. It refuses the plan with exit code 12,
and changes nothing, if the hive, a node or a machine has changed since.

No system is activated before all systems are built. A node that already runs
its system is not changed. The failure of one node does not affect the others.

A switch is armed: the node rolls back by itself if the switch fails, or if
nixbench does not confirm it over a new connection.

In a running cluster, members that all others need, such as control planes,
change one at a time, other nodes --max-unavailable at a time (default: 1). Each
node is drained before. If a drain would delete work permanently, apply lists
this work, and changes nothing. At the end, apply runs nixbench check.`

const applyLongEnd = `

With the goals switch, boot and test, apply first creates and boots the machines
of the hive's roles. It removes machines that the hive no longer contains when
all others are ready. Before it removes, restarts or recreates a machine, it
asks, unless --yes is set.`

var applyGoals = []string{"switch", "boot", "test", "dry-activate", "build", "push", "upload-keys", "keys"}

type applyFlags struct {
	fleetFlags
	drain     drainFlags
	keepGoing bool
	armFlags
	rollbackAll    bool
	maxUnavailable string
	specialisation string
	activator      string
	replaceUnknown bool
	buildOnTarget  bool
	noBuildThere   bool
	substitute     bool
	noSubstitute   bool
	noKeys         bool
	noCheck        bool
	checkTimeout   time.Duration
	recreate, yes  bool
	bootTimeout    time.Duration
	reboot         bool
	rebootTimeout  time.Duration
	keepResult     bool
}

func applyCommand(a *app) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use:   "apply [GOAL|FILE]",
		Short: "Build systems, copy them to nodes, and switch to them",
		Long:  withEngineHelp(applyLong, func(h engine.Help) string { return h.Drain }) + applyLongEnd,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return applyGoals, cobra.ShellCompDirectiveDefault // and files: plans
		},
		Example: `  nixbench apply
  nixbench apply --on @web --max-unavailable 25%
  nixbench plan --out web.plan && nixbench apply web.plan
  nixbench apply dry-activate --on db
  nixbench apply --reboot --on 'web-*'`,
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && isPlanFile(args[0]) {
				return nil
			}
			cmd.ValidArgs = applyGoals // set only here, for the message about an invalid goal: a command with ValidArgs completes no files
			return cobra.OnlyValidArgs(cmd, args)
		}),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(args) == 1 && isPlanFile(args[0]) {
			return runApplyPlan(a, args[0], flags, cmd.Flags())
		}
		goal := node.Switch
		if flags.reboot {
			goal = node.Boot
		}
		if len(args) == 1 {
			goal = node.Goal(args[0])
		}
		return runApply(a, goal, flags, nil, "")
	})
	flags.addTo(cmd)
	return cmd
}

func (f *applyFlags) addTo(cmd *cobra.Command) {
	set := cmd.Flags()
	set.SortFlags = false
	f.add(set)
	set.BoolVar(&f.keepGoing, "keep-going", false, "deploy the other nodes if some cannot be evaluated or built")
	f.addArming(set)
	set.BoolVar(&f.rollbackAll, "rollback-all-on-failure", false, "roll back all nodes of this run when one fails")
	set.StringVar(&f.maxUnavailable, "max-unavailable", "", "switch at most `N|P%` of the nodes at once, and stop after a failure")
	set.StringVar(&f.specialisation, "specialisation", "", "switch to this specialisation of the system")
	addChoice(set, &f.activator, "activator", []string{"switch-to-configuration", activate.NixosRebuild}, "program that activates a system on a node: switch-to-configuration, or nixos-rebuild if it has --store-path")
	set.BoolVar(&f.replaceUnknown, "force-replace-unknown-profiles", false, "replace systems that were not deployed from this hive, regardless of deployment.replaceUnknownProfiles")
	set.BoolVar(&f.buildOnTarget, "build-on-target", false, "build every system on its node")
	set.BoolVar(&f.noBuildThere, "no-build-on-target", false, "build every system on this machine, regardless of deployment.buildOnTarget")
	set.BoolVar(&f.substitute, "substitute-on-destination", true, "let nodes fetch store paths from their own substituters")
	set.BoolVar(&f.noSubstitute, "no-substitute", false, "copy all store paths from this machine")
	f.drain.add(set, noDrainHelp)
	set.BoolVar(&f.noCheck, "no-check", false, "do not wait until the cluster is healthy")
	set.DurationVar(&f.checkTimeout, "check-timeout", 5*time.Minute, "time limit for the check of the cluster")
	set.BoolVar(&f.noKeys, "no-keys", false, "do not upload deployment.keys")
	set.BoolVar(&f.recreate, "recreate", false, "recreate machines whose role has another image now; the data on their disks are lost")
	set.BoolVar(&f.reboot, "reboot", false, "reboot the nodes that have not booted their new system, and wait until they are back")
	set.DurationVar(&f.rebootTimeout, "reboot-timeout", 5*time.Minute, "time limit for a node to come back after --reboot")
	set.BoolVar(&f.keepResult, "keep-result", false, "with the goal build, create links result-NODE as nixbench build does")
	set.DurationVar(&f.bootTimeout, "boot-timeout", 0, "time limit for a machine to become ready (default 5m, 10m if it is emulated)")
	set.BoolVarP(&f.yes, "yes", "y", false, "remove and restart machines without asking")
	acceptFlags(set, colmenaFlags...)
}

func uploadKeysCommand(a *app) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use:   "upload-keys",
		Short: "Upload deployment.keys",
		Long: `Upload the keys that differ from those on the nodes, and remove keys that the
hive no longer contains. Systems are neither evaluated nor switched.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runApply(a, node.UploadKeys, flags, nil, "") })
	set := cmd.Flags()
	set.SortFlags = false
	flags.fleetFlags.add(set)
	set.BoolVar(&flags.noKeys, "no-keys", false, "an error, as in Colmena")
	set.Lookup("no-keys").Hidden = true
	acceptFlags(set, colmenaFlags...)
	return cmd
}

// toOptions validates the flags and converts them to the options of an apply.
func (f *applyFlags) toOptions(goal node.Goal) (stages.Options, error) {
	o := stages.Options{
		Options: plan.Options{
			Options:     node.Options{Goal: goal, RollbackAll: f.rollbackAll, Specialisation: f.specialisation, ReplaceUnknown: f.replaceUnknown},
			WithoutKeys: f.noKeys, WithoutDrain: f.drain.noDrain,
		},
		Parallel: f.parallel, KeepGoing: f.keepGoing,
		Partial: len(f.on) > 0, Recreate: f.recreate, BootTimeout: f.bootTimeout,
		RebootNodes: f.reboot, RebootTimeout: f.rebootTimeout,
	}
	if f.checkTimeout < 0 {
		return o, failure.NewUsage("--check-timeout must be greater than 0 (it is %v), such as 5m; use --no-check to omit the check", f.checkTimeout)
	}
	if !f.noCheck {
		o.CheckTimeout = f.checkTimeout
	}
	if f.bootTimeout < 0 {
		return o, failure.NewUsage("--boot-timeout must not be negative (it is %v)", f.bootTimeout)
	}
	if goal == "keys" {
		o.Goal = node.UploadKeys
	}
	if o.Goal == node.UploadKeys && f.noKeys {
		return o, failure.NewUsage("--no-keys and the goal upload-keys exclude each other")
	}
	if err := f.validateReboot(o.Goal); err != nil {
		return o, err
	}
	var err error
	if o.Confirm, o.SettleTime, err = f.validateArming(); err != nil {
		return o, err
	}
	o.NoReboot = f.noReboot
	if o.Specialisation != "" && o.Goal != node.Switch && o.Goal != node.Test {
		return o, failure.NewUsage("--specialisation requires the goal switch or test: boot loaders select generations, not specialisations")
	}
	if f.parallel < 0 {
		return o, failure.NewUsage("--parallel must not be negative (it is %d); 0 means all at once", f.parallel)
	}
	if o.Confirm == 0 && f.rollbackAll {
		return o, failure.NewUsage("--rollback-all-on-failure requires rollback, which --no-rollback and --confirm-timeout 0 disable")
	}
	if f.buildOnTarget && f.noBuildThere {
		return o, failure.NewUsage("--build-on-target and --no-build-on-target exclude each other")
	}
	if f.buildOnTarget || f.noBuildThere {
		o.BuildOnTarget = &f.buildOnTarget
	}
	if f.activator == activate.NixosRebuild {
		o.ActivateWith = f.activator
	}
	if o.Drain, err = f.drain.toOptions(); err != nil {
		return o, err
	}
	o.MaxUnavailable, err = selection.ParseShare(f.maxUnavailable)
	return o, err
}

// validateReboot returns an error if --reboot cannot be combined with the goal of the apply or with the other flags.
func (f *applyFlags) validateReboot(goal node.Goal) error {
	switch {
	case !f.reboot:
		return nil
	case goal != node.Boot && goal != node.Switch:
		return failure.NewUsage("--reboot requires the goal boot or switch (it is %s): a node boots the system of its profile", goal)
	case f.specialisation != "":
		return failure.NewUsage("--reboot and --specialisation exclude each other: boot loaders select generations, not specialisations")
	case f.rollbackAll:
		return failure.NewUsage("--reboot and --rollback-all-on-failure exclude each other: a reboot is not rolled back")
	case f.rebootTimeout <= 0:
		return failure.NewUsage("--reboot-timeout must be greater than 0 (it is %v)", f.rebootTimeout)
	}
	return nil
}

// runApply deploys the nodes that the flags select. saved is the plan to execute, and file the name of its file; nil: there is no
// plan.
func runApply(a *app, goal node.Goal, flags applyFlags, saved *stages.SavedPlan, file string) error {
	options, err := flags.toOptions(goal)
	if err != nil {
		return err
	}
	set := func(r *deploy.Request) {
		r.Command, r.Nodes, r.AllNodesOnly = "apply", deploy.DeployedNodes, saved == nil // a plan names its nodes
		r.Eval.Specialisation, r.Keys = flags.specialisation, options.UsesKeys()
		if options.Goal == node.UploadKeys {
			r.Nodes = deploy.RemoteNodes
		}
	}
	if goal == "build" {
		return runBuild(a, flags.fleetFlags, set, flags.keepGoing, flags.keepResult)
	}
	s, err := a.open(flags.fleetFlags, set)
	if err != nil {
		return err
	}
	defer s.Close()
	applied, err := s.Apply(a.ctx, deploy.ApplyOptions{
		Options: options, NoSubstitute: !flags.substitute || flags.noSubstitute, File: file, Saved: saved,
		Ask: func(changes []changes.Change, makePlan func() (*stages.Plan, error)) error {
			if !flags.yes && a.canAsk() && options.Goal == node.Switch { // also if some nodes cannot be planned: the plan shows the others, and apply reports the errors
				made, err := makePlan()
				if made.Nodes == nil {
					return err
				}
				a.announce(func(w io.Writer) { writePreviews(w, made.Nodes) })
			}
			var list []string
			for _, c := range changes {
				list = append(list, c.String())
			}
			return a.askAboutList("apply", "apply these changes?", list, flags.yes)
		},
	})
	if applied.Results != nil {
		a.view.Result(applied.Results, func(w io.Writer) { writeChangedPackages(w, applied.Changes) }) // only the changed packages as text: the view has already shown the result of each node
	}
	return err
}
