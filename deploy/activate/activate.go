package activate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Activator activates systems. It may be used for any number of nodes at the same time.
type Activator struct {
	Send event.Sink
}

// Goal is how far an activation goes.
type Goal string

const (
	Switch      Goal = "switch"       // activate the system and make it the boot default
	Boot        Goal = "boot"         // only make it the boot default
	Test        Goal = "test"         // only activate it
	DryActivate Goal = "dry-activate" // only report what a switch would do; nothing is changed
)

// NixosRebuild is the value of Request.Activator for the node's own nixos-rebuild.
const NixosRebuild = "nixos-rebuild"

// Request describes an activation.
type Request struct {
	Run            string // the id of the run, without spaces
	Path           string // the system, in the node's store
	Goal           Goal
	Specialisation string

	// Confirm is how long the node waits for a confirmation before it rolls back. Zero
	// disables the rollback (--no-rollback).
	Confirm time.Duration

	// SettleTime is how long services that the switch has started must stay active before
	// the switch is successful. With zero they are not watched.
	SettleTime time.Duration

	// Unless ReplaceUnknown is set, the systems that the node runs and boots must be in
	// Known or have been deployed by nixbench.
	ReplaceUnknown bool
	Known          []string

	// Activator is NixosRebuild, or empty for switch-to-configuration.
	Activator         string
	InstallBootLoader bool // nixos-rebuild's --install-bootloader

	generation int // of the profile, for a rollback to it
}

// Result is the result of a request. It is also complete if the error is a *FailedError.
type Result struct {
	Before, After  Node
	Changed        bool // false if there was nothing to do
	Outcome        Outcome
	Exit           int      // of switch-to-configuration; -1 if it was not run
	Broken         []string // units that failed in this switch and not before it
	AlreadyFailing []string // units that failed before and still do
	Logs           map[string][]string
	Log            []string // the last lines of the switch
	PreviousRun    *Run     // the unfinished earlier run that was completed, or nil
	Dry            *Dry     // for DryActivate
	Refused        error    // for DryActivate: why a real activation would be refused
}

// RolledBack reports whether the node runs the previous system again.
func (r Result) RolledBack() bool { return r.Outcome == RolledBack }

// RebootNeeded reports whether the node would boot another kernel than it runs, or the
// new system can only be activated by a reboot.
func (r Result) RebootNeeded() bool {
	return r.After.RebootNeeded() || r.After.Last != nil && r.After.Last.Reason == reasonReboot
}

// Activate makes the node run or boot the system of the request. It first finishes an
// unfinished earlier run. It does nothing if the node is in the desired state already.
func (a *Activator) Activate(ctx context.Context, node string, h Host, r Request) (Result, error) {
	if err := r.validate(node); err != nil {
		return Result{}, err
	}
	before, err := a.inspect(ctx, node, h, r)
	if err != nil {
		return Result{}, err
	}
	res := Result{Before: before, After: before, Exit: -1}
	if err := r.checkSystem(node, before); err != nil {
		return res, err
	}
	if r.Goal == DryActivate {
		res.Refused = r.CheckReplaceable(node, before)
		return a.dry(ctx, node, h, r, res)
	}
	if before.HasUnfinishedRun() {
		if res.PreviousRun, err = a.finishPrevious(ctx, node, h, before, r); err != nil {
			return res, err
		}
		if before, err = a.inspect(ctx, node, h, r); err != nil {
			return res, err
		}
		res.Before, res.After = before, before
	}
	if err := r.checkKnownSystems(node, before); err != nil {
		return res, err
	}
	goal := r.remainingGoal(before)
	if goal == "" {
		return res, nil
	}
	res.Changed = true
	return a.runActivation(ctx, node, h, r, goal, res)
}

// validate checks the request for mistakes of the caller.
func (r Request) validate(node string) error {
	switch {
	case !slices.Contains([]Goal{Switch, Boot, Test, DryActivate}, r.Goal):
		return failure.On(node, fmt.Errorf("activate: there is no goal %q", r.Goal))
	case r.Activator != "" && r.Activator != NixosRebuild && r.Activator != "switch-to-configuration":
		return failure.On(node, fmt.Errorf("activate: there is no activator %q", r.Activator))
	case r.Specialisation != "" && r.Goal == Boot:
		return failure.On(node, errors.New("activate: a specialisation cannot be the boot default: boot loaders know generations only"))
	case r.Goal != DryActivate && r.Run == "":
		return failure.On(node, errors.New("activate: the run has no id"))
	case r.Confirm < 0:
		return failure.On(node, fmt.Errorf("activate: cannot wait %s for a confirmation", r.Confirm))
	case r.SettleTime < 0:
		return failure.On(node, fmt.Errorf("activate: cannot watch services for %s", r.SettleTime))
	case !path.IsAbs(r.Path), strings.ContainsAny(r.Run+r.Path+r.Specialisation, " \t\n"):
		return failure.On(node, fmt.Errorf("activate: bad run, path or specialisation: %q %q %q", r.Run, r.Path, r.Specialisation))
	}
	return nil
}

// checkSystem fails if the node is not NixOS or cannot activate the requested system.
func (r Request) checkSystem(node string, n Node) error {
	switch {
	case !n.NixOS:
		return &NotNixOSError{Node: node}
	case n.desired == "":
		return &NotSystemError{Node: node, Path: r.Path, Specialisation: r.Specialisation, Has: n.specialisations}
	case r.Activator == NixosRebuild && !n.StorePath:
		return &NoStorePathError{Node: node}
	}
	return nil
}

// CheckReplaceable fails if Activate would refuse to replace the systems on the inspected node.
// If an earlier run is unfinished it returns nil: the systems may still change, and Activate
// checks them later.
func (r Request) CheckReplaceable(node string, n Node) error {
	if n.HasUnfinishedRun() {
		return nil
	}
	return r.checkKnownSystems(node, n)
}

// checkKnownSystems fails if the node runs or boots a system that must not be replaced.
func (r Request) checkKnownSystems(node string, n Node) error {
	if r.ReplaceUnknown {
		return nil
	}
	for _, has := range []string{n.Current, n.Profile} {
		if has != "" && has != r.Path && has != n.desired && !slices.Contains(r.Known, has) && !slices.Contains(n.Deployed, has) {
			return &UnknownProfileError{Node: node, Path: has}
		}
	}
	return nil
}

// remainingGoal returns the part of the goal that is not reached yet; empty if there is none.
func (r Request) remainingGoal(n Node) Goal {
	runs := n.Current == n.desired
	// An unfinished or failed run may have set the profile but not the boot loader.
	last := n.Last
	doubtful := last != nil && last.path == r.Path && last.Goal != Test && last.Outcome != Committed && last.Outcome != BootDefault
	boots := n.Profile == r.Path && !doubtful
	switch {
	case last != nil && last.path == r.Path && last.Outcome == Failed && r.Goal != Boot:
		return r.Goal // the system runs, but the last switch to it failed
	case r.Goal == Test && runs, r.Goal == Boot && boots, r.Goal == Switch && runs && boots:
		return ""
	case r.Goal == Switch && runs:
		return Boot
	}
	return r.Goal
}
