package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/nixeval"
)

const applyLong = `Build the systems of nodes, copy them to the nodes, and switch to them.

Goals:
  switch        activate the system, and make it the boot default (the default)
  boot          only make it the boot default
  test          only activate it, until the next boot
  dry-activate  show which units a switch would change, and change nothing
  build         only build, like nixbench build
  push          build and copy
  upload-keys   only upload deployment.keys (or: keys)

FILE is a plan of nixbench plan --out or nixbench build --out. apply refuses a
plan of nixbench plan with exit code 12 if the hive, a node or a machine has
changed since. Where the hive is not, FILE needs a signature FILE.sig of
ssh-keygen -Y sign.

NODE=SYSTEM switches one node to a system in the store, without evaluating it.

No system is activated before all systems are built. A node that already runs
its system is not changed. The failure of one node does not affect the others.

A switch is armed: the node rolls back by itself if the switch fails, or if
nixbench does not confirm it over a new connection.

In a running cluster, members that all others need, such as control planes,
change one at a time, other nodes --max-unavailable at a time (default: 1). Each
node is drained before. If a drain would delete work permanently, apply lists
this work, and changes nothing. At the end, apply runs nixbench check.

With the goals switch, boot and test, apply first creates and boots the machines
of the hive's roles. It removes machines that the hive no longer contains when
all others are ready. Before it removes, restarts or recreates a machine, it
asks, unless --yes is set.`

var applyGoals = []string{"switch", "boot", "test", "dry-activate", "build", "push", "upload-keys", "keys"}

type applyFlags struct {
	rollingFlags
	buildOnTarget, noBuildThere bool
	noSubstitute, yes           bool

	trust  deploy.PlanTrust
	system string // store path of NODE=SYSTEM
}

func applyCommand(a *app) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use:        "apply [GOAL|FILE|NODE=SYSTEM]",
		Short:      "Build systems, copy them to nodes, and switch to them",
		SuggestFor: []string{"deploy", "switch", "push", "up"},
		Long:       withEngineHelp(applyLong, func(h engine.Help) string { return h.Drain }),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return applyGoals, cobra.ShellCompDirectiveDefault // also completes files, such as a plan
		},
		Example: `  nixbench apply --on @web --max-unavailable 25%
  nixbench apply db=./result
  nixbench apply --reboot --on 'web-*' --timeout reboot=10m,check=0s`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(args) == 1 && isPlanFile(args[0]) {
			return runApplyPlan(a, args[0], flags, cmd.Flags())
		}
		if flags.trust.Unsigned || cmd.Flags().Changed("allowed-signers") {
			return failure.NewUsage("--unsigned and --allowed-signers are for plans: nixbench apply FILE")
		}
		if len(args) == 1 && strings.Contains(args[0], "=") {
			return runApplySystem(a, args[0], flags)
		}
		goal, err := parseGoal(args)
		if err != nil {
			return err
		}
		return runApply(a, goal, flags, nil)
	})
	flags.addTo(cmd.Flags())
	signers := "" // without a home, --allowed-signers must name the file
	if config, err := os.UserConfigDir(); err == nil {
		signers = filepath.Join(config, "nixbench", "allowed_signers")
	}
	cmd.Flags().StringVar(&flags.trust.Signers, "allowed-signers", signers, "`FILE` with the keys that may sign plans, see ssh-keygen(1)")
	cmd.Flags().Lookup("allowed-signers").DefValue = "~/.config/nixbench/allowed_signers"
	cmd.Flags().BoolVar(&flags.trust.Unsigned, "unsigned", false, "apply a plan without its hive also if nobody has signed it")
	return cmd
}

func parseGoal(args []string) (node.Goal, error) {
	switch {
	case len(args) == 0:
		return node.Switch, nil
	case args[0] == "keys":
		return node.UploadKeys, nil
	case !slices.Contains(applyGoals, args[0]):
		return "", failure.NewUsage("there is no goal %q; there are %s", args[0], strings.Join(applyGoals, ", "))
	}
	return node.Goal(args[0]), nil
}

func (f *applyFlags) addTo(set *pflag.FlagSet) {
	f.rollingFlags.add(set)
	f.addArming(set, "`WHAT` rolls back when a switch fails or makes a node unreachable: node: only this node, all: all nodes of the run, off: none",
		[]string{"node", "all", "off"},
		timeLimit{"check", &f.options.CheckTimeout, 5 * time.Minute, 0, "until the cluster is healthy, 0s: do not check it"},
		timeLimit{"boot", &f.options.BootTimeout, 0, time.Second, "until a machine is ready (5m, or 10m if it is emulated)"},
		timeLimit{"reboot", &f.options.RebootTimeout, 5 * time.Minute, time.Second, "until a node is back after --reboot"})
	set.BoolVar(&f.options.KeepGoing, "keep-going", false, "deploy the other nodes if some cannot be evaluated or built")
	set.StringVar(&f.options.Specialisation, "specialisation", "", "switch to this specialisation of the system")
	addChoice(set, &f.options.ActivateWith, "activator", "", []string{"switch-to-configuration", activate.NixosRebuild}, "`PROGRAM` that activates a system on a node: switch-to-configuration, or nixos-rebuild if it has --store-path")
	set.BoolVar(&f.options.ReplaceUnknown, "force-replace-unknown-profiles", false, "replace systems that were not deployed from this hive, regardless of deployment.replaceUnknownProfiles")
	set.BoolVar(&f.buildOnTarget, "build-on-target", false, "build every system on its node")
	set.BoolVar(&f.noBuildThere, "no-build-on-target", false, "build every system on this machine, regardless of deployment.buildOnTarget")
	set.BoolVar(&f.noSubstitute, "no-substitute", false, "copy all store paths from this machine; nodes do not fetch them from their own substituters")
	set.BoolVar(&f.options.WithoutKeys, "no-keys", false, "do not upload deployment.keys")
	set.BoolVar(&f.options.Recreate, "recreate", false, "recreate machines whose role has another image now; the data on their disks are lost")
	set.BoolVar(&f.options.RebootNodes, "reboot", false, "after the switch, reboot the nodes that have not booted their new system, and wait until they are back")
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
	}
	cmd.RunE = a.withView(func([]string) error { return runApply(a, node.UploadKeys, flags, nil) })
	set := cmd.Flags()
	flags.fleetFlags.add(set)
	flags.addSkip(set)
	set.BoolVar(&flags.options.WithoutKeys, "no-keys", false, "an error, as in Colmena")
	set.Lookup("no-keys").Hidden = true
	acceptFlags(set, colmenaFlags...)
	return cmd
}

func (f *applyFlags) toOptions(goal node.Goal) (stages.Options, error) {
	o, err := f.rollingFlags.toOptions()
	o.Goal = goal
	if f.buildOnTarget || f.noBuildThere {
		o.BuildOnTarget = &f.buildOnTarget
	}
	if o.ActivateWith != activate.NixosRebuild {
		o.ActivateWith = ""
	}
	switch {
	case err != nil:
		return o, err
	case goal == node.UploadKeys && o.WithoutKeys:
		return o, failure.NewUsage("--no-keys and the goal upload-keys exclude each other")
	case o.Specialisation != "" && goal != node.Switch && goal != node.Test:
		return o, failure.NewUsage("--specialisation requires the goal switch or test: boot loaders select generations, not specialisations")
	case f.buildOnTarget && f.noBuildThere:
		return o, failure.NewUsage("--build-on-target and --no-build-on-target exclude each other")
	case !o.RebootNodes:
		return o, nil
	case goal != node.Boot && goal != node.Switch:
		return o, failure.NewUsage("--reboot requires the goal boot or switch (it is %s): a node boots the system of its profile", goal)
	case o.Specialisation != "":
		return o, failure.NewUsage("--reboot and --specialisation exclude each other: boot loaders select generations, not specialisations")
	case o.RollbackAll:
		return o, failure.NewUsage("--reboot and --rollback all exclude each other: a reboot is not rolled back")
	}
	return o, nil
}

// runApply deploys the nodes that the flags select. saved is the plan to execute; nil: there is no plan.
func runApply(a *app, goal node.Goal, flags applyFlags, saved *deploy.PlanFile) error {
	options, err := flags.toOptions(goal)
	if err != nil {
		return err
	}
	set := func(r *deploy.Request) {
		r.Command, r.Nodes, r.AllNodesOnly = "apply", deploy.DeployedNodes, saved == nil // a plan names its nodes
		r.Plan, r.System = saved, flags.system
		if goal != node.Switch {
			r.Command += " " + string(goal)
		}
		r.Eval.Specialisation = options.Specialisation
		if goal == node.UploadKeys {
			r.Nodes = deploy.RemoteNodes
		}
	}
	if goal == "build" {
		return runBuild(a, flags.fleetFlags, set, options.KeepGoing, false, "")
	}
	return a.inSession(flags.fleetFlags, set, func(s *deploy.Session) error {
		applied, err := s.Apply(a.ctx, deploy.ApplyOptions{
			Options: options, NoSubstitute: flags.noSubstitute,
			Ask: func(changes []changes.Change, makePlan func() (*stages.Plan, error)) error {
				if !flags.yes && a.canAsk() && goal == node.Switch { // also if some nodes cannot be planned: the plan shows the others, and apply reports the errors
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
			a.view.Result(applied.Results, func(w io.Writer) { writeDiffs(w, applied.Changes, true) }) // only the changed packages as text: the view has already shown the result of each node
		}
		return err
	})
}

// isPlanFile reports whether the argument of apply is a plan file: a path or an existing file, and neither a goal nor NODE=SYSTEM.
func isPlanFile(arg string) bool {
	return !slices.Contains(applyGoals, arg) && (durable.Exists(arg) || strings.ContainsAny(arg, "/.") && !strings.Contains(arg, "="))
}

// runApplySystem deploys a system in the store to one node. arg is NODE=SYSTEM.
func runApplySystem(a *app, arg string, flags applyFlags) error {
	name, path, _ := strings.Cut(arg, "=")
	if len(flags.on) > 0 || flags.options.Specialisation != "" {
		return failure.NewUsage("apply %s selects the node and its system; --on and --specialisation exclude it", arg)
	}
	system := path
	if !nixeval.IsSystem(path) {
		system, _ = filepath.EvalSymlinks(path) // such as the link result of nix build
	}
	if !nixeval.IsSystem(system) {
		return failure.NewUsage("apply %s: %q is neither the path of a system in the store nor a link to one", arg, path)
	}
	flags.system, flags.on, flags.noBuildThere = system, []string{name}, true
	return runApply(a, node.Switch, flags, nil)
}

// fixedByEvaluation and fixedByDecision are the flags that cannot be set when a plan is applied, because the plan contains their values.
// In a plan of nixbench build, nothing is decided.
var (
	fixedByEvaluation = []string{"set", "recreate", "keep-going", "specialisation", "build-on-target", "no-build-on-target"}
	fixedByDecision   = []string{"on", "no-keys", "no-drain", "drain-delete", "max-unavailable", "reboot"}
)

func runApplyPlan(a *app, file string, flags applyFlags, set *pflag.FlagSet) error {
	r, err := a.newRequest(flags.fleetFlags)
	if err != nil {
		return err
	}
	saved, err := r.ReadPlan(a.ctx, file, flags.trust)
	if err != nil {
		return err
	}
	fixed := slices.Clone(fixedByEvaluation)
	if !saved.OnlyBuilds() {
		fixed = append(fixed, fixedByDecision...)
	}
	for _, name := range fixed {
		if f := set.Lookup(name); f != nil && f.Changed {
			return failure.NewUsage("apply %s: --%s and a plan exclude each other: the plan has its own arguments", file, name)
		}
	}
	if args := saved.Arguments; !saved.OnlyBuilds() {
		a.sets = args.Sets
		flags.on, flags.options.WithoutKeys, flags.options.Recreate, flags.maxUnavailable = args.On, args.NoKeys, args.Recreate, args.MaxUnavailable
		flags.options.WithoutDrain, flags.options.Drain.Allowed = args.NoDrain, args.DrainAllowed
		flags.skipUnreachable = flags.skipUnreachable || args.SkipUnreachable
	}
	if saved.NeedsNoHive() {
		a.sets, flags.noBuildThere = nil, true
		if len(flags.on) == 0 || !saved.OnlyBuilds() {
			flags.on = saved.NodeNames()
		}
		if saved.Signer != "" {
			a.sink.Note("%s has signed the plan %s", saved.Signer, file)
		}
	}
	return runApply(a, node.Switch, flags, saved)
}
