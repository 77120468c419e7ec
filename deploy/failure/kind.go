package failure

// Kind is the kind of an error. If an error wraps or joins other errors, its kind is the smallest of the kinds of these
// errors, see [KindOf]. The constants are in the order of the steps of a run, the smallest first.
type Kind int

const (
	Interrupted Kind = iota // the user interrupted the command
	Declined                // the user answered a question with no, and nothing was done
	Usage                   // the command line does not fit the command or the hive
	Evaluation              // Nix cannot evaluate a node or a role of the hive
	Build                   // a derivation cannot be built
	Outdated                // the hive, a node or a machine has changed since the plan was made
	Changes                 // no failure: there are changes, and the user asked for a special exit code in this case
	Locked                  // another process has the cluster's lock
	StateFolder             // the state folder cannot be read or written
	Provision               // a machine cannot be created, changed or booted
	Unreachable             // no connection to a node, or no login
	Cluster                 // the running cluster does not answer, or refuses a change
	Copy                    // a closure or a key did not arrive on a node
	Activation              // a node does not run the system that it should run
	Lost                    // an operation on a node made the node unreachable; same exit code as Activation
	Check                   // a check found that a condition does not hold
	Command                 // a command that the user runs on nodes failed
	Nix                     // Nix failed, and its error does not say which node or role is the reason
	Timeout                 // a node did not answer in time, and no other kind applies
	Internal                // every other error
)

type Classified interface {
	error
	Kind() Kind
}

// KindOf returns the smallest kind of err and its causes; Internal if none of them has a kind. A cause of the kind
// Unreachable does not count if an error of the kind Cluster or Lost wraps it.
func KindOf(err error) Kind { return findKind(err, false) }

// findKind returns the smallest kind of err and its causes. If unreachableHidden is set, the kind Unreachable does not count.
func findKind(err error, unreachableHidden bool) Kind {
	kind := Internal
	if e, ok := err.(Classified); ok {
		kind = e.Kind()
	}
	unreachableHidden = unreachableHidden || kind == Cluster || kind == Lost // errors of these kinds explain why a node is unreachable
	if kind == Unreachable && unreachableHidden {
		kind = Internal
	}
	for _, cause := range causes(err) {
		kind = min(kind, findKind(cause, unreachableHidden))
	}
	return kind
}
