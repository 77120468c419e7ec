package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/rollout"

	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/node"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Exit codes, documented in docs/exit-codes.md. Scripts depend on them, so they must not change.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitEvaluation  = 3
	exitBuild       = 4
	exitProvision   = 5
	exitUnreachable = 6
	exitCopy        = 7
	exitActivation  = 8
	exitCheck       = 9
	exitLocked      = 10
	exitInterrupted = 130
)

// usageError means that the command line is invalid.
type usageError struct {
	err     error
	command string // the command whose --help the hint names
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// hintedError is an error with a hint about what to do.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error. No other function decides on exit codes. If several
// steps failed, the earliest step decides.
func exitCode(err error) int {
	var (
		usage         *usageError
		source        *nixeval.SourceError
		set           *nixeval.SetError
		sel           *selection.SelectError
		eval          *nixeval.EvalError
		build         *nixeval.BuildError
		nix           *nixeval.NixError
		locked        *state.LockedError
		worst         *execError
		failed        *checkError
		unmet         *check.Error
		adjust        *rollout.AdjustError
		noPredecessor *deploy.NoPredecessorError
		unavailable   *rollout.ClusterUnavailableError
		access        *kubernetes.AccessError
		newKey        *newKeyError
		timeout       *remote.TimeoutError
		trust         *state.TrustError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &source), errors.As(err, &set), errors.As(err, &sel), errors.As(err, &noPredecessor), errors.As(err, &trust):
		return exitUsage
	case errors.As(err, &eval):
		return exitEvaluation
	case errors.As(err, &build):
		return exitBuild
	case errors.As(err, &locked):
		return exitLocked
	case isProvisionError(err):
		return exitProvision
	case isUnreachable(err), isConnectError(err):
		return exitUnreachable
	case errors.As(err, &unavailable), errors.As(err, &access), errors.As(err, &newKey): // regardless of the wrapped causes
		return exitCheck
	case isCopyError(err):
		return exitCopy
	case isActivationError(err):
		return exitActivation
	case errors.As(err, &failed), errors.As(err, &unmet), errors.As(err, &adjust):
		return exitCheck
	case errors.As(err, &worst):
		return worst.code
	case errors.As(err, &nix):
		return exitEvaluation
	case errors.As(err, &timeout): // in a step without an exit code of its own
		return exitUnreachable
	}
	return exitInternal
}

// isProvisionError reports whether a machine could not be created, changed or booted.
func isProvisionError(err error) bool {
	var (
		boot  *machines.BootError
		place *provision.Error
		plan  *provision.PlanError
		image *machines.ImageError
		where *facts.EndpointError
	)
	return errors.As(err, &boot) || errors.As(err, &place) || errors.As(err, &plan) || errors.As(err, &image) || errors.As(err, &where)
}

// isUnreachable reports whether nixbench could not log in to a node. It returns false if a switch
// cut the node off, because then the switch failed; if a node did not come back from a reboot; and
// if a control plane was only queried about the cluster, because then the cluster is unavailable.
func isUnreachable(err error) bool {
	switch e := err.(type) {
	case *activate.LostSightError, *activate.RebootError, *rollout.ClusterUnavailableError, *kubernetes.AccessError, *newKeyError:
		return false
	case *remote.UnreachableError, *remote.HostKeyUnknownError, *remote.HostKeyChangedError,
		*remote.AuthError, *remote.EscalationError, *fleet.NoHostError:
		return true
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), isUnreachable)
	case interface{ Unwrap() error }:
		return isUnreachable(e.Unwrap())
	}
	return false
}

// isConnectError reports whether the connection to a node was lost before anything was done on it.
func isConnectError(err error) bool {
	return slices.ContainsFunc(nodeErrors(err), func(e *fleet.NodeError) bool { return e.Step == event.Connect })
}

// isCopyError reports whether a closure or a key could not be copied.
func isCopyError(err error) bool {
	for _, e := range nodeErrors(err) {
		if e.Step == event.Copy || e.Step == event.Keys {
			return true
		}
	}
	var c *closure.Error
	return errors.As(err, &c)
}

// isActivationError reports whether a node does not run the system that it should run.
func isActivationError(err error) bool {
	var (
		reboot  *activate.RebootError
		gone    *remote.LostError
		notOS   *activate.NotNixOSError
		absent  *node.GoneError
		busy    *activate.BusyError
		version *engine.VersionError
		blocked *engine.BlockedError
	)
	return len(nodeErrors(err)) > 0 || errors.As(err, &version) || errors.As(err, &blocked) || errors.As(err, &reboot) || errors.As(err, &gone) || errors.As(err, &notOS) ||
		errors.As(err, &absent) || errors.As(err, &busy)
}

// nodeErrors returns the NodeErrors of all nodes, at any depth of err.
func nodeErrors(err error) []*fleet.NodeError {
	if n, ok := err.(*fleet.NodeError); ok {
		return []*fleet.NodeError{n}
	}
	var out []*fleet.NodeError
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			out = append(out, nodeErrors(inner)...)
		}
	case interface{ Unwrap() error }:
		out = nodeErrors(e.Unwrap())
	}
	return out
}

// splitProblems splits an error into the problems that are shown separately.
func splitProblems(err error) []ui.Problem {
	if boot, ok := err.(*machines.BootError); ok { // its cause may be a joined error, but it is one problem
		return []ui.Problem{{Message: boot.Error(), Hint: boot.Hint()}}
	}
	if several := joinedErrors(err); len(several) > 0 {
		var out []ui.Problem
		for _, e := range several {
			out = append(out, splitProblems(e)...)
		}
		return out
	}
	var (
		unevaluable *rollout.UnevaluableMembersError
		eval        *nixeval.EvalError
		build       *nixeval.BuildError
		nix         *nixeval.NixError
		usage       *usageError
		hint        *hintedError
		// Errors of other packages that have a hint.
		helpful interface {
			error
			Hint() string
		}
	)
	switch {
	case errors.As(err, &unevaluable):
		return []ui.Problem{{Message: err.Error(), Hint: unevaluable.Hint()}}
	case errors.As(err, &eval):
		return mergeEvalProblems(eval)
	case errors.As(err, &build):
		var out []ui.Problem
		for _, e := range build.Failures {
			out = append(out, ui.Problem{Message: e.Error(), Hint: buildHint(e)})
		}
		return append(out, ui.Problem{Message: build.Error()})
	case errors.As(err, &nix):
		return []ui.Problem{{Message: nix.Error(), Hint: nix.Hint()}}
	case errors.As(err, &hint):
		return []ui.Problem{{Message: err.Error(), Hint: hint.hint}}
	case errors.As(err, &helpful):
		return []ui.Problem{{Message: err.Error(), Hint: helpful.Hint()}}
	case errors.As(err, &usage) && usage.command != "":
		return []ui.Problem{{Message: err.Error(), Hint: "see " + usage.command + " --help"}}
	case errors.Is(err, nixeval.ErrNoNix):
		return []ui.Problem{{Message: err.Error(), Hint: "install Nix 2.18 or later, see https://nixos.org/download"}}
	}
	return []ui.Problem{{Message: err.Error()}}
}

// joinedErrors returns the errors of an errors.Join. It returns nil for other errors with several
// causes, because they have a message of their own, and for a join that is wrapped in another
// error.
func joinedErrors(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return nil
	}
	return joined.Unwrap()
}

// mergeEvalProblems merges problems with the same message: an error in `defaults` occurs in every node.
func mergeEvalProblems(err *nixeval.EvalError) []ui.Problem {
	var out []ui.Problem
	at := map[string]int{}
	for _, unit := range sortedNames(err.Units) {
		e := err.Units[unit]
		if i, ok := at[e.Error()]; ok {
			out[i].Where += ", " + unit
			continue
		}
		at[e.Error()] = len(out)
		out = append(out, ui.Problem{Where: unit, Message: e.Error(), Hint: e.Hint()})
	}
	return out
}

func buildHint(e *nixeval.NixError) string {
	if e.Drv == "" {
		return e.Hint()
	}
	return "the full log: nix log " + e.Drv
}
