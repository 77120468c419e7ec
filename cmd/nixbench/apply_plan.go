package main

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// isPlanFile reports whether the argument of apply is a plan file and not a goal: it is no goal, and looks like a path or is one.
func isPlanFile(arg string) bool {
	return !slices.Contains(applyGoals, arg) && (strings.ContainsAny(arg, "/.") || durable.Exists(arg))
}

// fixedByPlan are the flags whose values are those of the plan.
var fixedByPlan = []string{"on", "set", "no-keys", "recreate", "no-drain", "max-unavailable",
	"keep-going", "specialisation", "reboot", "build-on-target", "no-build-on-target", "keep-result"}

// applyPlanFile executes a saved plan.
func (a *app) applyPlanFile(file string, flags applyFlags, set *pflag.FlagSet) error {
	for _, name := range append(flags.drain.names(), fixedByPlan...) {
		if f := set.Lookup(name); f != nil && f.Changed {
			return newUsageError("apply %s: --%s and a plan exclude each other: the plan has its own arguments", file, name)
		}
	}
	saved, err := deploy.ReadPlan(file, a.findPlanKey)
	if err != nil {
		return err
	}
	args := saved.Arguments
	a.sets = args.Sets
	flags.plan, flags.planFile = &saved, file
	flags.on, flags.noKeys, flags.recreate, flags.maxUnavailable = args.On, args.NoKeys, args.Recreate, args.MaxUnavailable
	flags.drain.noDrain = args.NoDrain
	for name, value := range flags.drain.allow {
		*value = slices.Contains(args.DrainAllowed, name)
	}
	return a.apply(node.Switch, flags)
}

// findPlanKey returns the key of the state that must have written a plan: that of the hive here, or of -f or --flake. A plan that
// somebody else has made does not choose the hive, because a hive can run programs.
func (a *app) findPlanKey(saved deploy.SavedPlan) ([]byte, error) {
	here, err := a.locateHive()
	if err != nil {
		return nil, err
	}
	if a.file == "" && a.flake == "" && here.String() != saved.Hive {
		flag := "-f "
		if saved.IsFlake {
			flag = "--flake "
		}
		return nil, failure.WithHint(newUsageError("the plan is for the hive %s, which is not the one here", saved.Hive), "if you trust it, name it: "+flag+shellescape.Quote(saved.Hive))
	}
	if saved.Cluster != filepath.Base(saved.Cluster) {
		return nil, newUsageError("the plan is for the cluster %q, which is not a name", saved.Cluster)
	}
	dir, err := state.Locate(here, saved.Cluster)
	if err == nil {
		err = a.verifyState(dir)
	}
	if err != nil {
		return nil, err
	}
	return keys.PlanKey(dir)
}

// verifyPlan makes the plan of flags.planFile again, and returns an [deploy.OutdatedPlanError] if it differs.
func (a *app) verifyPlan(d *deploy.Deployer, e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, recorded *state.State, flags applyFlags) (*deploy.Plan, error) {
	o, err := flags.toPreview()
	if err != nil {
		return nil, err
	}
	made, err := a.previewWith(d, hive, nodes, recorded, o)
	if err != nil {
		return nil, err
	}
	changes := flags.plan.CompareWith(a.newSavedPlan(e, hive, nodes, made))
	if len(changes) > 0 {
		return nil, &deploy.OutdatedPlanError{File: flags.planFile, Made: flags.plan.Made, Changes: changes}
	}
	if !made.Changes() && (deploy.Plan{Nodes: flags.plan.Nodes}).Changes() {
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: "the plan " + flags.planFile + " was applied already; there is nothing to change"})
	}
	made.File, made.Made = flags.planFile, flags.plan.Made
	return &made, nil
}

// toPreview returns the options of the plan that apply executes with these flags.
func (f *applyFlags) toPreview() (deploy.PreviewOptions, error) {
	p := planFlags{fleetFlags: f.fleetFlags, drain: f.drain, noKeys: f.noKeys, recreate: f.recreate, maxUnavailable: f.maxUnavailable, keepGoing: f.keepGoing}
	return p.toOptions()
}

// showPlanBeforeQuestion shows the plan on a terminal before apply asks about machines, and lets apply execute it. It shows what
// `plan` prints. If some nodes cannot be planned, it shows the others; apply reports the errors.
func (a *app) showPlanBeforeQuestion(d *deploy.Deployer, hive *nixeval.Hive, nodes []nixeval.Node, recorded *state.State, flags applyFlags, o *deploy.Options) error {
	if flags.yes || !a.canAsk() || o.Goal != node.Switch {
		return nil
	}
	if o.Plan.Nodes == nil {
		preview, err := flags.toPreview()
		if err != nil {
			return err
		}
		made, err := a.previewWith(d, hive, nodes, recorded, preview)
		if made.Nodes == nil {
			return err
		}
		*o.Plan = made
	}
	a.announce(func(w io.Writer) { writePreviews(w, o.Plan.Nodes) })
	return nil
}
