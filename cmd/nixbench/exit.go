package main

import (
	"errors"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/nixeval"
)

// Exit codes that are used by name.
const (
	exitOK          = 0
	exitInterrupted = 130
)

// exitCodes contains the exit code for each kind of error (docs/failures.md). Scripts depend on them, so they must not change.
var exitCodes = map[failure.Kind]int{
	failure.Internal:    1,
	failure.StateFolder: 1,
	failure.Usage:       2,
	failure.Declined:    2,
	failure.Evaluation:  3,
	failure.Nix:         3,
	failure.Build:       4,
	failure.Provision:   5,
	failure.Unreachable: 6,
	failure.Timeout:     6,
	failure.Copy:        7,
	failure.Activation:  8,
	failure.Lost:        8,
	failure.Check:       9,
	failure.Cluster:     9,
	failure.Locked:      10,
	failure.Changes:     11,
	failure.Outdated:    12,
	failure.Interrupted: exitInterrupted,
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	kind := failure.KindOf(err)
	if command, ok := errors.AsType[*commandError](err); ok && kind == failure.Command {
		return command.code
	}
	return exitCodes[kind]
}

// splitProblems converts an error to the problems that nixbench shows, such as one for each unit of the hive that failed.
func splitProblems(err error) []ui.Problem {
	var out []ui.Problem
	whole := ui.Problem{Message: err.Error(), Hint: failure.Hint(err)}
	if _, ok := err.(*machine.BootError); ok { // one problem with the name of the node, although its cause may be a joined error
		return []ui.Problem{whole}
	}
	if several := joinedErrors(err); len(several) > 0 {
		for _, e := range several {
			out = append(out, splitProblems(e)...)
		}
		return out
	}
	if eval, ok := errors.AsType[*nixeval.EvalError](err); ok {
		return mergeEvalProblems(eval)
	}
	if build, ok := errors.AsType[*nixeval.BuildError](err); ok {
		for _, e := range build.Failures {
			out = append(out, ui.Problem{Message: e.Error(), Hint: e.Hint()})
		}
		return append(out, ui.Problem{Message: build.Error()})
	}
	if nix, ok := errors.AsType[*nixeval.NixError](err); ok {
		whole = ui.Problem{Message: nix.Error(), Hint: nix.Hint()}
	}
	return []ui.Problem{whole}
}

// describeForRecord returns an error with all problems of err, as the terminal shows them: the message of some errors is only a summary.
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
	for _, unit := range nixeval.SortedNames(err.Units) {
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

// commandError means that a program such as kubectl, or a command on nodes, has failed. nixbench ends with its exit code.
type commandError struct {
	text  string
	code  int
	shown bool // the program has shown its own error, so nixbench shows none
}

func (e *commandError) Error() string { return e.text }

func (e *commandError) Kind() failure.Kind { return failure.Command }
