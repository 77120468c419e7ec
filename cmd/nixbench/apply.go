package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
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

	plan     *deploy.SavedPlan // the plan to execute, or nil
	planFile string
}

func (a *app) applyCommand() *cobra.Command {
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
			cmd.ValidArgs = applyGoals // only for the error: a command with ValidArgs completes no files
			return cobra.OnlyValidArgs(cmd, args)
		}),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if len(args) == 1 && isPlanFile(args[0]) {
			return a.applyPlanFile(args[0], flags, cmd.Flags())
		}
		goal := node.Switch
		if flags.reboot {
			goal = node.Boot
		}
		if len(args) == 1 {
			goal = node.Goal(args[0])
		}
		return a.apply(goal, flags)
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
	set.StringVar(&f.activator, "activator", "switch-to-configuration", "program that activates a system on a node: switch-to-configuration, or nixos-rebuild if it has --store-path")
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

func (a *app) uploadKeysCommand() *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use:   "upload-keys",
		Short: "Upload deployment.keys",
		Long: `Upload the keys that differ from those on the nodes, and remove keys that the
hive no longer contains. Systems are neither evaluated nor switched.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.apply(node.UploadKeys, flags) })
	set := cmd.Flags()
	set.SortFlags = false
	flags.fleetFlags.add(set)
	set.BoolVar(&flags.noKeys, "no-keys", false, "an error, as in Colmena")
	set.Lookup("no-keys").Hidden = true
	acceptFlags(set, colmenaFlags...)
	return cmd
}

// toOptions validates the flags and converts them to the options of an apply.
func (f *applyFlags) toOptions(goal node.Goal) (deploy.Options, error) {
	o := deploy.Options{
		Options: plan.Options{
			Options:     node.Options{Goal: goal, RollbackAll: f.rollbackAll, Specialisation: f.specialisation, ReplaceUnknown: f.replaceUnknown},
			WithoutKeys: f.noKeys, WithoutDrain: f.drain.noDrain,
		},
		Parallel: f.parallel, KeepGoing: f.keepGoing,
		Partial: len(f.on) > 0, Recreate: f.recreate, BootTimeout: f.bootTimeout,
		RebootNodes: f.reboot, RebootTimeout: f.rebootTimeout,
	}
	if f.checkTimeout < 0 {
		return o, newUsageError("--check-timeout must be greater than 0 (it is %v), such as 5m; use --no-check to omit the check", f.checkTimeout)
	}
	if !f.noCheck {
		o.CheckTimeout = f.checkTimeout
	}
	if f.bootTimeout < 0 {
		return o, newUsageError("--boot-timeout must not be negative (it is %v)", f.bootTimeout)
	}
	if goal == "keys" {
		o.Goal = node.UploadKeys
	}
	if o.Goal == node.UploadKeys && f.noKeys {
		return o, newUsageError("--no-keys and the goal upload-keys exclude each other")
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
		return o, newUsageError("--specialisation requires the goal switch or test: boot loaders select generations, not specialisations")
	}
	if f.parallel < 0 {
		return o, newUsageError("--parallel must not be negative (it is %d); 0 means all at once", f.parallel)
	}
	if o.Confirm == 0 && f.rollbackAll {
		return o, newUsageError("--rollback-all-on-failure requires rollback, which --no-rollback and --confirm-timeout 0 disable")
	}
	if f.buildOnTarget && f.noBuildThere {
		return o, newUsageError("--build-on-target and --no-build-on-target exclude each other")
	}
	if f.buildOnTarget || f.noBuildThere {
		o.BuildOnTarget = &f.buildOnTarget
	}
	switch f.activator {
	case "switch-to-configuration", "":
	case activate.NixosRebuild:
		o.ActivateWith = f.activator
	default:
		return o, newUsageError("--activator must be switch-to-configuration or nixos-rebuild (it is %s)", f.activator)
	}
	if o.Drain, err = f.drain.toOptions(); err != nil {
		return o, err
	}
	o.MaxUnavailable, err = selection.ParseShare(f.maxUnavailable)
	return o, err
}

// validateReboot returns an error if --reboot does not fit the goal or the other flags.
func (f *applyFlags) validateReboot(goal node.Goal) error {
	switch {
	case !f.reboot:
		return nil
	case goal != node.Boot && goal != node.Switch:
		return newUsageError("--reboot requires the goal boot or switch (it is %s): a node boots the system of its profile", goal)
	case f.specialisation != "":
		return newUsageError("--reboot and --specialisation exclude each other: boot loaders select generations, not specialisations")
	case f.rollbackAll:
		return newUsageError("--reboot and --rollback-all-on-failure exclude each other: a reboot is not rolled back")
	case f.rebootTimeout <= 0:
		return newUsageError("--reboot-timeout must be greater than 0 (it is %v)", f.rebootTimeout)
	}
	return nil
}

func (a *app) apply(goal node.Goal, flags applyFlags) error {
	o, err := flags.toOptions(goal)
	if err != nil {
		return err
	}
	a.specialisation = flags.specialisation
	e, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if !hive.Meta.AllowApplyAll && len(flags.on) == 0 && flags.plan == nil { // a plan names its nodes
		return failure.WithHint(newUsageError("apply: meta.allowApplyAll is false in %s, so --on must select the nodes", e.Source), "for all of them: --on '*'")
	}
	if goal == "build" {
		return a.buildOnly(e, hive, nodes, flags.keepGoing, flags.keepResult)
	}
	if o.UsesKeys() {
		hive = hive.WithKeys(nodes)
	}
	if o.Goal == node.UploadKeys || len(hive.Broken) == 0 { // if units are broken, the evaluation reports them
		if nodes, err = a.selectRemoteNodes(hive, nodes); err != nil {
			return err
		}
	}
	return a.runRecorded(e, hive, "apply", func(s *session) error {
		d := &deploy.Deployer{
			Eval: s.eval, Fleet: a.newFleet(hive, flags.fleetFlags, s.store),
			Copier:    &closure.Copier{Send: s.send, NixOptions: e.NixOptions, Substitute: flags.substitute && !flags.noSubstitute},
			Uploader:  &secrets.Uploader{Send: s.send, Generated: vault.Open(a.dir.Vault()).Part},
			Activator: &activate.Activator{Send: s.send},
			Store:     s.store, Record: s.record, Send: s.send, Engines: a.engines(),
			Keep:     func(built map[string]nixeval.Closure) error { return a.registerRoots(e, hive, built) },
			Machines: a.newMachines(e, hive, s.send),
		}
		d.Machines.Ask = func(changes []machine.Change) error {
			if err := a.showPlanBeforeQuestion(d, hive, nodes, s.store.State(), flags, &o); err != nil {
				return err
			}
			return a.confirmChanges(changes, flags.yes)
		}
		defer d.Fleet.Close()
		before := s.store.State()
		if before.Cluster == nil && d.Machines.HasMachines(before) {
			a.warnIfRenamed(e, hive)
		}
		o.Plan = &deploy.Plan{}
		if flags.plan != nil {
			if o.Plan, err = a.verifyPlan(d, e, hive, nodes, before, flags); err != nil {
				return err
			}
		}
		err := d.Apply(a.ctx, hive, nodes, o)
		if err == nil && o.Goal == node.Switch && !o.Partial {
			for _, usage := range describeNewClusters(hive, before) {
				s.send(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: usage})
			}
		}
		var changes []packages.Group
		if err == nil && o.Plan.Nodes == nil { // otherwise the user has seen the plan
			changes, _ = a.readChanges(s.record) // a run does not fail because of its record
		}
		a.view.Result(s.record.Results(), func(w io.Writer) { writeChangedPackages(w, changes) }) // the view has already shown each node's result
		return err
	})
}

// session is a recorded run that holds the cluster's lock.
type session struct {
	eval   *nixeval.Evaluator
	store  *state.Store
	record *runs.Recorder
	send   event.Sink
}

// runRecorded holds the cluster's lock while it runs f, and records the run. The record is also
// written if f fails, but not if the user declined what f asked.
func (a *app) runRecorded(e *nixeval.Evaluator, hive *nixeval.Hive, command string, f func(*session) error) error {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self(command))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err != nil {
		return err
	}
	record, err := runs.Record(lock, runs.Info{
		Args: runs.SafeArgs(os.Args[1:]), Hive: e.Source.String(), Scheduler: hive.Scheduler(), Revision: readGitRevision(a.ctx, e.Source.Dir), Nixbench: readBuildVersion().Version,
	})
	if err != nil {
		return err
	}
	s := &session{eval: e, store: store, record: record, send: func(ev event.Event) {
		record.Event(ev)
		a.ongoing.observe(ev)
		a.view.Event(ev)
	}}
	a.sink = s.send // the record must also contain the events of Nix
	a.recording.Store(true)
	err = f(s)
	if failure.KindOf(err) == failure.Declined { // nothing was done, so there is nothing to record
		return errors.Join(err, record.Discard())
	}
	code := exitCode(a.preferCause(err))
	if endErr := record.End(code, describeForRecord(err)); endErr != nil {
		err = errors.Join(err, endErr)
	}
	_, _ = runs.Prune(lock, runs.Keep) // ignore an error, because the next run also removes old records
	return err
}

// preferCause returns errInterrupted if the command failed after an interrupt signal. If this computer is the probable cause
// of an error of Nix, or of one without a kind, it adds this cause to err. Otherwise it returns err.
func (a *app) preferCause(err error) error {
	if err != nil && errors.Is(context.Cause(a.ctx), errInterrupted) {
		return errInterrupted
	}
	switch failure.KindOf(err) {
	case failure.Evaluation, failure.Build, failure.Nix, failure.Internal:
		if broken := checkEnvironment(); err != nil && broken != nil {
			return errors.Join(broken, err)
		}
	}
	return err
}

// readGitRevision returns the revision of the git tree that contains the hive, with the suffix
// -dirty if the tree has changes. It returns an empty string outside of git.
func readGitRevision(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// registerRoots registers closures that were built on this machine as garbage collector roots.
func (a *app) registerRoots(e *nixeval.Evaluator, hive *nixeval.Hive, built map[string]nixeval.Closure) error {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	links := map[string]string{}
	for unit, c := range built {
		links[dir.Root(unit)] = c.Out
	}
	if len(links) == 0 {
		return nil
	}
	if err := dir.Create(); err != nil {
		return err
	}
	if err := e.Keep(a.ctx, links); err != nil {
		return fmt.Errorf("gcroots: %w", err)
	}
	return nil
}
