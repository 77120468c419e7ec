package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// Exit codes, documented in docs/failures.md. Scripts depend on them, so they must not change.
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
	exitChanges     = 11
	exitOutdated    = 12
	exitInterrupted = 130
)

// exitCodes contains the exit code for each kind of error.
var exitCodes = map[failure.Kind]int{
	failure.Interrupted: exitInterrupted,
	failure.Declined:    exitUsage,
	failure.Usage:       exitUsage,
	failure.Environment: exitInternal,
	failure.Evaluation:  exitEvaluation,
	failure.Build:       exitBuild,
	failure.Outdated:    exitOutdated,
	failure.Changes:     exitChanges,
	failure.Locked:      exitLocked,
	failure.StateFolder: exitInternal,
	failure.Provision:   exitProvision,
	failure.Unreachable: exitUnreachable,
	failure.Cluster:     exitCheck,
	failure.Copy:        exitCopy,
	failure.Activation:  exitActivation,
	failure.Lost:        exitActivation,
	failure.Check:       exitCheck,
	failure.Nix:         exitEvaluation,
	failure.Timeout:     exitUnreachable,
	failure.Internal:    exitInternal,
}

// exitCode returns the exit code for an error. If err joins errors of several kinds, [failure.KindOf] chooses the kind that
// determines the exit code.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	kind := failure.KindOf(err)
	var command *execError
	if kind == failure.Command && errors.As(err, &command) {
		return command.code
	}
	var program *programError
	if kind == failure.Command && errors.As(err, &program) {
		return program.code
	}
	return exitCodes[kind]
}

// splitProblems converts an error to the problems that nixbench shows. An error about several failed units of the hive becomes one
// problem for each unit.
func splitProblems(err error) []ui.Problem {
	var (
		unevaluable *rollout.UnevaluableMembersError
		eval        *nixeval.EvalError
		build       *nixeval.BuildError
		nix         *nixeval.NixError
	)
	whole := []ui.Problem{{Message: err.Error(), Hint: failure.Hint(err)}}
	if _, ok := err.(*machine.BootError); ok { // one problem for a BootError, although its cause may be a joined error
		return whole
	}
	if several := joinedErrors(err); len(several) > 0 {
		var out []ui.Problem
		for _, e := range several {
			out = append(out, splitProblems(e)...)
		}
		return out
	}
	switch {
	case errors.As(err, &unevaluable): // before the case of EvalError, because its cause is an EvalError
		return whole
	case errors.As(err, &eval):
		return mergeEvalProblems(eval)
	case errors.As(err, &build):
		var out []ui.Problem
		for _, e := range build.Failures {
			out = append(out, ui.Problem{Message: e.Error(), Hint: buildErrorHint(e)})
		}
		return append(out, ui.Problem{Message: build.Error()})
	case errors.As(err, &nix):
		return []ui.Problem{{Message: nix.Error(), Hint: nix.Hint()}}
	case whole[0].Hint == "" && errors.Is(err, nixeval.ErrNoNix):
		whole[0].Hint = "install Nix 2.18 or later, see https://nixos.org/download"
	}
	return whole
}

// describeForRecord returns an error for the record of a run. Its message contains all problems of err, as the terminal shows
// them, because the message of some errors is only a summary.
func describeForRecord(err error) error {
	if err == nil {
		return nil
	}
	var lines []string
	for _, p := range splitProblems(err) {
		if p.Where != "" {
			p.Message = p.Where + ": " + p.Message
		}
		lines = append(lines, p.Message)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// joinedErrors returns the errors that errors.Join has joined to err. It returns nil for any other error: one of another type with
// several causes has a message of its own, and an error that wraps a joined error adds text to it.
func joinedErrors(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return nil
	}
	return joined.Unwrap()
}

// mergeEvalProblems returns one problem for each different message, with the names of all units of the hive that have this error.
// An error in `defaults` of the hive, for example, occurs in every unit.
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

func buildErrorHint(e *nixeval.NixError) string {
	if e.Drv == "" {
		return e.Hint()
	}
	return "the full log: nix log " + e.Drv
}

// programError means that another program (such as kubectl) failed that nixbench has run for the user. nixbench ends with the exit
// code of this program. It shows no error, because the program has shown its own.
type programError struct {
	program string
	code    int
}

func (e *programError) Error() string { return fmt.Sprintf("%s: exit status %d", e.program, e.code) }

// Kind implements [failure.Classified].
func (e *programError) Kind() failure.Kind { return failure.Command }
