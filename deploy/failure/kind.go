package failure

import "fmt"

// Kind is the kind of an error. An error that wraps or joins other errors has the smallest of their kinds, see
// [KindOf]. The kinds are in the order of the steps of a run.
type Kind int

const (
	Interrupted Kind = iota // the user interrupted the command
	Declined                // the user answered a question with no, and nothing was done
	Usage                   // the command line does not fit the command or the hive
	Environment             // a folder of this computer that every command needs cannot be used
	Evaluation              // units of the hive cannot be evaluated
	Build                   // a derivation cannot be built
	Outdated                // the hive, a node or a machine has changed since the plan was made
	Changes                 // no failure: there are changes, and the user asked for the exit code of changes
	Locked                  // another process has the cluster's lock
	StateFolder             // the state folder cannot be read or written
	Provision               // a machine cannot be created, changed or booted
	Unreachable             // no connection to a node, or no login
	Cluster                 // the running cluster does not answer, or refuses a change
	Copy                    // a closure or a key did not arrive on a node
	Activation              // a node does not run the system that it should run
	Lost                    // an operation on a node made the node unreachable; same exit code as Activation
	Check                   // a condition does not hold
	Command                 // a command that the user runs on nodes failed
	Nix                     // Nix failed, and the error names no unit
	Timeout                 // a node did not answer in time, in a step without a kind
	Internal                // every other error
)

// Classified is an error with a kind.
type Classified interface {
	error
	Kind() Kind
}

// NewUsage returns an error of the kind Usage. The format is that of [fmt.Errorf].
func NewUsage(format string, args ...any) error { return WithKind(Usage, fmt.Errorf(format, args...)) }

// WithKind returns err with a kind and the same message.
func WithKind(kind Kind, err error) error { return &classified{err, kind} }

type classified struct {
	error
	kind Kind
}

func (e *classified) Kind() Kind    { return e.kind }
func (e *classified) Unwrap() error { return e.error }

// hidesUnreachable reports whether an error of this kind already explains why a node is unreachable. Causes of
// the kind Unreachable are then ignored.
func (k Kind) hidesUnreachable() bool { return k == Cluster || k == Lost }

// KindOf returns the smallest kind of err and its causes; Internal if none of them has a kind. A cause of the kind
// Unreachable does not count if an error of the kind Cluster or Lost wraps it.
func KindOf(err error) Kind { return findKind(err, false) }

func findKind(err error, unreachableHidden bool) Kind {
	kind := Internal
	if e, ok := err.(Classified); ok {
		kind = e.Kind()
	}
	unreachableHidden = unreachableHidden || kind.hidesUnreachable()
	if kind == Unreachable && unreachableHidden {
		kind = Internal
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, cause := range e.Unwrap() {
			kind = min(kind, findKind(cause, unreachableHidden))
		}
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil {
			kind = min(kind, findKind(cause, unreachableHidden))
		}
	}
	return kind
}
