package activate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Activator activates systems on nodes. One Activator may be used for several nodes concurrently.
type Activator struct {
	Send         event.Sink
	StartMachine func(ctx context.Context, node string) error // starts the machine of a node that is off; nil: nobody does

	maxRun time.Duration // for tests; 0: the constant maxRun
}

// Goal is the goal of an activation: whether the node runs the system, boots it, or both.
type Goal string

const (
	Switch      Goal = "switch"       // activate the system and make it the boot default
	Boot        Goal = "boot"         // make the system the boot default, but do not activate it
	Test        Goal = "test"         // activate the system, but do not change the boot default
	DryActivate Goal = "dry-activate" // only report what a switch would do; nothing is changed
)

// NixosRebuild is the value of Request.Activator with which the node's nixos-rebuild activates the system.
const NixosRebuild = "nixos-rebuild"

// Request describes an activation.
type Request struct {
	Run            string // the id of the run, without spaces
	Path           string // store path of the system, which must be in the node's store
	Goal           Goal
	Specialisation string

	// Confirm is how long the node waits for a confirmation before it rolls back. Zero disables the rollback (--rollback off).
	Confirm time.Duration

	// SettleTime is how long services that the switch has started must stay active; zero: they are not watched.
	SettleTime time.Duration

	// AfterSwitch, if it is not nil, is called once, after the switch and before the first confirmation. It returns true if it has
	// changed the node, such as its keys. The node then also watches the services that have started because of this change.
	AfterSwitch func(context.Context) bool

	// AfterLogin, if it is not nil, is called once in the background, when the node has accepted a login after the switch. The node may
	// still roll back then. Activate waits until AfterLogin returns. If Confirm is zero, AfterLogin is not called.
	AfterLogin func(context.Context)

	// CheckHealth, if it is not nil, runs the health checks of the node, for at most HealthTime. It is called once, between the two
	// confirmations. If it returns an error, the node rolls back. If Confirm is zero, it is not called.
	CheckHealth func(context.Context) error
	HealthTime  time.Duration

	// If ReplaceUnknown is false, Activate fails for a node with a system that is not in Known and was not deployed by nixbench.
	ReplaceUnknown bool
	Known          []string

	// Activator is the program that activates the system: NixosRebuild, or empty for switch-to-configuration.
	Activator string

	// Observed is the node at an earlier inspection, or nil. Activate inspects it again only if its systems have changed since then.
	Observed *Node

	// Generation is the existing generation with the system, for the profile. If it is 0, the system becomes a new generation.
	Generation int
}

// Result is the result of a Request. All fields are set, also if Activate returns a *FailedError.
type Result struct {
	Before, After  Node
	Changed        bool // false if the node had reached the goal already
	Outcome        Outcome
	Exit           int                 // exit status of switch-to-configuration; -1 if it was not run
	Broken         []string            // systemd units that failed in this switch and not before it
	AlreadyFailing []string            // systemd units that failed before this switch and still fail
	Logs           map[string][]string // name of a systemd unit in Broken → the last lines of its log
	Log            []string            // the last lines of the switch
	PreviousRun    *Run                // the earlier activation that was unfinished, and that Activate has completed; nil if there was none
	Dry            []string            // for DryActivate: what a switch would do, such as "restart a.service, b.service"
	Refused        error               // for the goal DryActivate: why Activate would refuse the goal Switch
}

// RolledBack reports whether the node runs the previous system again.
func (r Result) RolledBack() bool { return r.Outcome == RolledBack }

// OnlyBoots reports whether the node has the system only as its boot default, because only a reboot can activate it.
func (r Result) OnlyBoots() bool {
	return r.Changed && r.After.Last != nil && r.After.Current != r.After.Last.To
}

// RebootNeeded reports whether the node would boot another kernel than the running one, or the new system can only be activated by
// a reboot.
func (r Result) RebootNeeded() bool {
	return r.After.RebootNeeded() || r.After.Last != nil && r.After.Last.Reason == reasonReboot
}

// Activate makes the node run or boot the system of the request. If an earlier run is unfinished,
// Activate finishes that run first. It does nothing if the node has reached the goal already.
func (a *Activator) Activate(ctx context.Context, node string, h Host, r Request) (Result, error) {
	if strings.ContainsAny(r.Run+r.Path+r.Specialisation, " \t\n") { // the node separates them by spaces
		return Result{}, failure.On(node, fmt.Errorf("activate: bad run, path or specialisation: %q %q %q", r.Run, r.Path, r.Specialisation))
	}
	o := r.Observed
	if o != nil && o.NixOS && !o.HasUnfinishedRun() && r.Goal != DryActivate && r.Specialisation == "" { // o has all that an activation must know
		before := o.WithDesired(r.Path)
		res, err := a.activateInspected(ctx, node, h, r, Result{Before: before, After: before, Exit: -1})
		if !errors.Is(err, errNodeChanged) { // the node is still as it was, and has the system in its store
			return res, err
		}
	}
	before, err := a.inspect(ctx, node, h, r, Full)
	if err != nil {
		return Result{}, err
	}
	res := Result{Before: before, After: before, Exit: -1}
	switch {
	case !before.NixOS:
		return res, NewNotNixOSError(node)
	case before.desired == "":
		return res, newNotSystemError(node, r, before.specialisations)
	case r.Goal == DryActivate:
		if !before.HasUnfinishedRun() {
			res.Refused = r.CheckReplaceable(node, before)
		}
		return a.dryActivate(ctx, node, h, r, res)
	}
	if before.HasUnfinishedRun() {
		if res.PreviousRun, err = a.finishInspected(ctx, node, h, before, r); err != nil {
			return res, err
		}
		if before, err = a.inspect(ctx, node, h, r, Full); err != nil {
			return res, err
		}
		res.Before, res.After = before, before
	}
	r.Observed = nil
	return a.activateInspected(ctx, node, h, r, res)
}

// activateInspected activates the system on a node that was inspected. res.Before is the node's state in this inspection. If
// r.Observed is set, the error is errNodeChanged if the node's systems have changed since, or if the system is not in its store.
func (a *Activator) activateInspected(ctx context.Context, node string, h Host, r Request, res Result) (Result, error) {
	if err := r.CheckReplaceable(node, res.Before); err != nil {
		return res, err
	}
	has := func(g Generation) bool { return g.Number == r.Generation && g.Path == r.Path }
	if r.Generation != 0 && !slices.ContainsFunc(res.Before.Generations, has) {
		return res, failure.On(node, fmt.Errorf("roll back: the node has no generation %d with %s", r.Generation, r.Path))
	}
	goal := r.remainingGoal(res.Before)
	if goal == "" {
		return res, nil
	}
	res.Changed = true
	return a.runActivation(ctx, node, h, r, goal, res)
}

// CheckReplaceable returns an error if the inspected node runs or boots a system that must not be replaced: nixbench has not deployed
// it. While an activation on the node is unfinished, the result is not final, because the systems may still change.
func (r Request) CheckReplaceable(node string, n Node) error {
	if r.ReplaceUnknown {
		return nil
	}
	for _, has := range []string{n.Current, n.Profile} {
		if has != "" && has != r.Path && has != n.desired && !slices.Contains(r.Known, has) && !slices.Contains(n.Deployed, has) {
			return newUnknownProfileError(node, has)
		}
	}
	return nil
}

// remainingGoal returns which part of the requested goal is still to do, or an empty goal.
func (r Request) remainingGoal(n Node) Goal {
	runs := n.Current == n.desired
	// If the last activation of the system failed or was not finished, it may have set the profile but not the boot loader.
	last := n.Last
	doubtful := last != nil && last.path == r.Path && last.Goal != Test && last.Outcome != Committed && last.Outcome != BootDefault
	boots := n.Profile == r.Path && !doubtful
	switch {
	case last != nil && last.path == r.Path && last.Outcome == Failed && r.Goal != Boot:
		return r.Goal // the desired system runs, but the last switch to it failed, so it is switched to again
	case r.Goal == Test && runs, r.Goal == Boot && boots, r.Goal == Switch && runs && boots:
		return ""
	case r.Goal == Switch && runs:
		return Boot
	}
	return r.Goal
}
