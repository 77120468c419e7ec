// Package engine is the seam between deploying nodes and what these nodes run together:
// Kubernetes today, SLURM and Flux next. nixbench sets engines up through NixOS
// modules and never becomes one; all it needs to know of them is here.
//
// A node says in `deployment.engine` of which engine it is a member, and as what. Modules
// set that, so whoever imports the modules of an engine has its checks and its order, and
// nothing else in nixbench mentions an engine by name.
package engine

import (
	"context"
	"io"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/nixeval"
)

// Engine is what a cluster's nodes run together.
type Engine interface {
	// Members tells what the running engine knows of its members. While there is no
	// engine yet, there are none; an engine that does not answer is an error.
	Members(ctx context.Context) (map[string]Status, error)
	// Drain moves work away from a member that is about to be changed or removed. A node that is no
	// member is no error. A member whose drain fails takes work as it did before. While it
	// waits, Drain reports for what.
	Drain(ctx context.Context, node string, o DrainOptions, report func(text string)) error
	// Return waits until a member works with what it has now, also one that was made anew and is
	// about to come in. A member that was drained takes work again then. While it waits, Return
	// reports for what.
	Return(ctx context.Context, node string, report func(text string)) error
	// Conditions are what must hold when a run is over. Deep ones start work of their own.
	Conditions(deep bool) []check.Condition
}

// Admitter is an engine whose members do not come in by themselves. It is told of each
// node that runs its system and is no member yet; nodes go on trying, so when that is
// does not matter. A node that has nothing to do with the engine is none of its business.
type Admitter interface {
	Admit(ctx context.Context, node string) error
}

// Versioned is an engine whose members cannot go from every version to every other.
type Versioned interface {
	// Versions tells which of these nodes have another version once they are deployed. That
	// they must not is a [VersionError]. What does not answer has no version.
	Versions(ctx context.Context, nodes []string) (map[string]Change, error)
}

// Change is that of a member's version.
type Change struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// VersionError says that the hive wishes for a version that cannot follow the running one.
type VersionError struct {
	Text string // with both versions, and the option of the hive
	Way  string // that leads there
}

func (e *VersionError) Error() string { return e.Text }

// Hint says what to do about it.
func (e *VersionError) Hint() string { return e.Way }

// Certified is an engine whose members stop working when certificates end.
type Certified interface {
	Certificates(ctx context.Context, node string) ([]Certificate, error)
}

// Certificate is one of a node's.
type Certificate struct {
	Name   string    `json:"name"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Authority: it signs others, which end with it.
	Authority bool `json:"authority,omitempty"`
	// Renewer is the node's unit that renews it, from Due on; empty: nobody does.
	Renewer string    `json:"renewer,omitempty"`
	Due     time.Time `json:"due,omitzero"`
}

// Adjuster is an engine that keeps something of its members which is no part of their
// systems, such as labels. They follow the hive without being changed themselves.
type Adjuster interface {
	// Adjust brings those of the nodes that are members to what the hive says, or, dry, only
	// looks. It tells in words what differed, by node.
	Adjust(ctx context.Context, nodes []string, dry bool) (map[string][]string, error)
}

// MemberRemover is an engine that remembers its members. One whose machine is about to be removed
// is taken out by being forgotten. One whose machine was made anew comes in as a new member,
// after the old one is forgotten. An error leaves a member that still counts as it is.
type MemberRemover interface {
	RemoveMember(ctx context.Context, node string) error
}

// Keyholder is an engine whose members store what they encrypt, with keys of nixbench's vault.
// A new key may only be used when all of them have it.
type Keyholder interface {
	// MembersWithout are the members that do not run with the secret as it is by this SHA-256. A
	// secret that the engine has nothing to do with is with all of them.
	MembersWithout(ctx context.Context, secret, sum string) ([]string, error)
}

// Status is how a member is doing.
type Status struct {
	Ready    bool
	Drained  bool // by our own Drain, and not yet returned
	OneByOne bool // as the hive says of a [Member]; the engine knows it also of those that have left the hive
}

// Cluster is what an engine works with.
type Cluster struct {
	Name    string
	Members []Member // all that the hive has, in its order
	// Run runs a command as root on a node and returns its stdout.
	Run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error)
}

// Member is a node with its part in the engine.
type Member struct {
	Node string
	nixeval.Engine
}

// Members are the nodes of a hive that belong to an engine, by kind.
func Members(hive *nixeval.Hive) map[string][]Member {
	out := map[string][]Member{}
	for _, n := range hive.Nodes {
		if u := hive.Unit(n.Unit); u != nil && u.Deployment.Engine != nil {
			e := *u.Deployment.Engine
			out[e.Kind] = append(out[e.Kind], Member{Node: n.Name, Engine: e})
		}
	}
	return out
}
