package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Exit codes, documented in docs/exit-codes.md. They are an interface: scripts
// depend on them.
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

// usageError is a command line that makes no sense.
type usageError struct {
	err     error
	command string // whose help would help
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// hinted is an error with a way out.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// exitCode is decided here alone. Where several things went wrong, the earliest
// stage counts.
func exitCode(err error) int {
	var (
		usage  *usageError
		source *nixeval.SourceError
		set    *nixeval.SetError
		sel    *plan.SelectError
		eval   *nixeval.EvalError
		build  *nixeval.BuildError
		nix    *nixeval.NixError
		locked *state.LockedError
		worst  *execError
		failed *checkError
		unmet  *check.Error
		unlike *deploy.AdjustError
		before *deploy.NoPredecessorError
		alone  *deploy.ClusterUnavailableError
		access *kubernetes.AccessError
		newKey *newKeyError
		silent *remote.TimeoutError
		trust  *state.TrustError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &source), errors.As(err, &set), errors.As(err, &sel), errors.As(err, &before), errors.As(err, &trust):
		return exitUsage
	case errors.As(err, &eval):
		return exitEvaluation
	case errors.As(err, &build):
		return exitBuild
	case errors.As(err, &locked):
		return exitLocked
	case provisioning(err):
		return exitProvision
	case unreachable(err), connecting(err):
		return exitUnreachable
	case errors.As(err, &alone), errors.As(err, &access), errors.As(err, &newKey): // whatever the causes
		return exitCheck
	case copying(err):
		return exitCopy
	case activating(err):
		return exitActivation
	case errors.As(err, &failed), errors.As(err, &unmet), errors.As(err, &unlike):
		return exitCheck
	case errors.As(err, &worst):
		return worst.code
	case errors.As(err, &nix):
		return exitEvaluation
	case errors.As(err, &silent): // of a step that has no code of its own
		return exitUnreachable
	}
	return exitInternal
}

// provisioning tells whether a machine is not there as it should be.
func provisioning(err error) bool {
	var (
		boot  *deploy.BootError
		place *provision.Error
		plan  *provision.PlanError
		image *deploy.ImageError
		where *facts.EndpointError
	)
	return errors.As(err, &boot) || errors.As(err, &place) || errors.As(err, &plan) || errors.As(err, &image) || errors.As(err, &where)
}

// unreachable tells whether we did not get in, on some node. One that a switch has
// locked us out of is no such node: there the switch failed. Nor is one that did not come back from a reboot. Nor are those that were only asked
// about what nodes run together: that is what is missing.
func unreachable(err error) bool {
	switch e := err.(type) {
	case *activate.LostSightError, *activate.RebootError, *deploy.ClusterUnavailableError, *kubernetes.AccessError, *newKeyError:
		return false
	case *remote.UnreachableError, *remote.HostKeyUnknownError, *remote.HostKeyChangedError,
		*remote.AuthError, *remote.EscalationError, *deploy.NoHostError:
		return true
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), unreachable)
	case interface{ Unwrap() error }:
		return unreachable(e.Unwrap())
	}
	return false
}

// connecting tells whether a node was lost before anything was done on it.
func connecting(err error) bool {
	return slices.ContainsFunc(nodeErrors(err), func(e *deploy.NodeError) bool { return e.Step == event.Connect })
}

// copying tells whether a closure or a key did not arrive.
func copying(err error) bool {
	for _, e := range nodeErrors(err) {
		if e.Step == event.Copy || e.Step == event.Keys {
			return true
		}
	}
	var c *closure.Error
	return errors.As(err, &c)
}

// activating tells whether a node did not come to run what it should.
func activating(err error) bool {
	var (
		reboot *activate.RebootError
		gone   *remote.LostError
		notOS  *activate.NotNixOSError
		absent *deploy.GoneError
		busy   *activate.BusyError
		skew   *engine.VersionError
		stays  *engine.BlockedError
	)
	return len(nodeErrors(err)) > 0 || errors.As(err, &skew) || errors.As(err, &stays) || errors.As(err, &reboot) || errors.As(err, &gone) || errors.As(err, &notOS) ||
		errors.As(err, &absent) || errors.As(err, &busy)
}

// nodeErrors are those of all nodes, however deep they are.
func nodeErrors(err error) []*deploy.NodeError {
	if n, ok := err.(*deploy.NodeError); ok {
		return []*deploy.NodeError{n}
	}
	var out []*deploy.NodeError
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

// problems takes an error apart into what is shown one by one.
func problems(err error) []ui.Problem {
	if boot, ok := err.(*deploy.BootError); ok { // whose cause may be several
		return []ui.Problem{{Message: boot.Error(), Hint: boot.Hint()}}
	}
	if several := parts(err); len(several) > 0 {
		var out []ui.Problem
		for _, e := range several {
			out = append(out, problems(e)...)
		}
		return out
	}
	var (
		unread *deploy.UnevaluableMembersError
		eval   *nixeval.EvalError
		build  *nixeval.BuildError
		nix    *nixeval.NixError
		usage  *usageError
		hint   *hinted
		// Errors of other packages that know the way out.
		helpful interface {
			error
			Hint() string
		}
	)
	switch {
	case errors.As(err, &unread):
		return []ui.Problem{{Message: err.Error(), Hint: unread.Hint()}}
	case errors.As(err, &eval):
		return evalProblems(eval)
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

// parts are those of errors.Join. What is joined further inside, or with words of its own, is
// told by an error that says what it is about.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return nil
	}
	return joined.Unwrap()
}

// evalProblems shows each message once: an error in `defaults` is one of every node.
func evalProblems(err *nixeval.EvalError) []ui.Problem {
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
