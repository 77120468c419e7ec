// Package failure classifies errors. An error type of any package may implement [Classified] to declare its
// kind, and [OnNode] to declare that its message begins with the name of a node.
//
// cmd/nixbench chooses the exit code by the kinds of an error and of its causes. The package imports
// none of our packages, so that every package may import it.
package failure

import (
	"fmt"
	"runtime/debug"
)

// NewUsage returns an error of the kind Usage. The format is that of [fmt.Errorf].
func NewUsage(format string, args ...any) error { return WithKind(Usage, fmt.Errorf(format, args...)) }

// WithKind returns err with a kind and the same message.
func WithKind(kind Kind, err error) error { return &described{err, kind, ""} }

// WithHint returns an error with the message of err and the given hint. Unless the hint is empty, it hides the hints of
// err and its causes.
func WithHint(err error, hint string) error { return &described{err, Internal, hint} }

type described struct {
	error
	kind Kind
	hint string
}

func (e *described) Kind() Kind    { return e.kind }
func (e *described) Hint() string  { return e.hint }
func (e *described) Unwrap() error { return e.error }

// Hint returns what the user can do about err: the first hint that is not empty, first of err itself and then of its causes.
func Hint(err error) string {
	if e, ok := err.(interface{ Hint() string }); ok && e.Hint() != "" {
		return e.Hint()
	}
	for _, cause := range causes(err) {
		if hint := Hint(cause); hint != "" {
			return hint
		}
	}
	return ""
}

// causes returns the errors that err wraps or joins.
func causes(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil {
			return []error{cause}
		}
	}
	return nil
}

// Recover calls f. If f panics, Recover returns the panic as an error with the stack.
func Recover(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("internal error, please report it: %v\n%s", value, debug.Stack())
		}
	}()
	return f()
}

// Suggest returns the text "; did you mean NAME?" with the name that is most similar to a mistyped name, or an empty text if none is. The
// hive's Nix code has the same function (suggestName in nixeval/nix/eval.nix).
func Suggest(typed string, names []string) string {
	for most := 1; most <= 2; most++ {
		for _, name := range names {
			if isNear(most, typed, name) {
				return "; did you mean " + name + "?"
			}
		}
	}
	return ""
}

// isNear reports whether at most n letters must be inserted, removed or replaced to change a into b.
func isNear(n int, a, b string) bool {
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= n
	case a[0] == b[0]:
		return isNear(n, a[1:], b[1:])
	}
	return n > 0 && (isNear(n-1, a[1:], b) || isNear(n-1, a, b[1:]) || isNear(n-1, a[1:], b[1:]))
}
