package main

import (
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/plan"
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
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &source), errors.As(err, &set), errors.As(err, &sel):
		return exitUsage
	case errors.As(err, &eval):
		return exitEvaluation
	case errors.As(err, &build):
		return exitBuild
	case errors.As(err, &nix):
		return exitEvaluation
	}
	return exitInternal
}

// problems takes an error apart into what is shown one by one.
func problems(err error) []ui.Problem {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var out []ui.Problem
		for _, e := range joined.Unwrap() {
			out = append(out, problems(e)...)
		}
		return out
	}
	var (
		eval  *nixeval.EvalError
		build *nixeval.BuildError
		nix   *nixeval.NixError
		usage *usageError
		hint  *hinted
	)
	switch {
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
	case errors.As(err, &usage) && usage.command != "":
		return []ui.Problem{{Message: err.Error(), Hint: "see " + usage.command + " --help"}}
	case errors.Is(err, nixeval.ErrNoNix):
		return []ui.Problem{{Message: err.Error(), Hint: "install Nix 2.18 or later, see https://nixos.org/download"}}
	}
	return []ui.Problem{{Message: err.Error()}}
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
