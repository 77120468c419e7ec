// Package engine is the interface between nixbench and the cluster software that the nodes run
// together: Kubernetes today, SLURM and Flux next. NixOS modules set engines up. nixbench uses an
// engine only through this package.
//
// The option `deployment.engine` of a node names its engine and its role in it. The modules of an
// engine set that option. A hive that imports them gets the checks and the update order of the
// engine, and no other part of nixbench mentions an engine by name.
package engine

import (
	"context"
	"io"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Engine is the cluster software that the nodes run together.
type Engine interface {
	// Members returns the observed status of each registered member. The map is empty while the
	// cluster does not exist yet. It is an error if the engine does not answer.
	Members(ctx context.Context) (map[string]Status, error)
	// Drain moves work away from members before they are changed. It marks all of them first, so that
	// none of them gets the work of another one, and then waits until their work has ended. It does
	// nothing for nodes that are not members. If the drain of one node fails, it removes all marks that
	// it has set, and returns a [DrainError] or a [BlockedError] that names that node.
	Drain(ctx context.Context, nodes []string, o DrainOptions, report Report) error
	// Uncordon lets a member take work again if a drain has marked it. It does not wait until the member
	// is ready. It does nothing for a node that is not a member, or that no drain has marked.
	Uncordon(ctx context.Context, node string) error
	// WaitReady waits until a member works with its current configuration. It changes nothing: a drained
	// member stays drained. It also waits for a node that the hive contains and that has not joined yet.
	WaitReady(ctx context.Context, node string, report Report) error
}

// Report receives what an operation on a node waits for, in words.
type Report func(node, text string)

// Checker is an engine with conditions that must hold at the end of a run.
type Checker interface {
	// Conditions returns these conditions. With deep set, it also returns conditions whose probes start
	// workloads.
	Conditions(deep bool) []check.Condition
}

// Conditions returns the conditions of an engine, if it has any.
func Conditions(e Engine, deep bool) []check.Condition {
	if c, ok := e.(Checker); ok {
		return c.Conditions(deep)
	}
	return nil
}

// Admitter is an engine that must allow a node to join. Admit is called for each node that runs its
// new system and is not a member yet. The node retries its join until it is admitted, so the time of
// the call does not matter. Admit does nothing for a node that does not belong to the engine.
type Admitter interface {
	Admit(ctx context.Context, node string) error
}

// Versioned is an engine that supports only some version changes.
type Versioned interface {
	// Versions returns the version change of each of these nodes whose desired version differs from
	// its observed one. It returns a [VersionError] if a change is not supported. Members that do not
	// answer are left out.
	Versions(ctx context.Context, nodes []string) (map[string]Change, error)
}

// Change is a change of a member's version.
type Change struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// VersionError is returned if the running version cannot be changed to the desired one.
type VersionError struct {
	Text   string // names both versions and the option of the hive
	Remedy string // which versions to set in the hive, or which nodes to deploy first
}

func (e *VersionError) Error() string { return e.Text }

// Kind implements [failure.Classified].
func (e *VersionError) Kind() failure.Kind { return failure.Activation }

// Hint says what to do about it.
func (e *VersionError) Hint() string { return e.Remedy }

// Certified is an engine whose members stop working when their certificates expire.
type Certified interface {
	Certificates(ctx context.Context, node string) ([]Certificate, error)
}

// Certificate is a certificate on a node.
type Certificate struct {
	Name   string    `json:"name"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Authority is set for a certificate authority. The certificates that it signs expire with it.
	Authority bool `json:"authority,omitempty"`
	// Renewer is the systemd unit of the node that renews the certificate from Due on. It is empty if
	// no unit renews it.
	Renewer string    `json:"renewer,omitempty"`
	Due     time.Time `json:"due,omitzero"`
}

// Adjuster is an engine that stores settings of its members outside of their systems, such as
// labels. These settings are changed without a deployment of the member.
type Adjuster interface {
	// Adjust reconciles the settings of the given nodes with the hive and returns the differences in
	// words, by node. Nodes that are not members are left out. With dry set, it changes nothing.
	Adjust(ctx context.Context, nodes []string, dry bool) (map[string][]string, error)
}

// MemberRemover is an engine that stores a list of its members.
type MemberRemover interface {
	// DrainForRemoval is called before RemoveMember, instead of Drain. It has the contract of Drain, but
	// it also drains members that an administrator has drained, and it leaves out members that cannot be
	// reached.
	DrainForRemoval(ctx context.Context, nodes []string, o DrainOptions, report Report) error
	// RemoveMember is called before the machine of a member is removed, and before a recreated machine
	// joins as a new member. If it returns an error while the engine still counts the member, the member
	// is unchanged.
	RemoveMember(ctx context.Context, node string) error
}

// Keyholder is an engine whose members encrypt stored data with keys from nixbench's vault. A new key
// may be used only after all members have it.
type Keyholder interface {
	// MembersWithout returns the members that do not use the version of the secret with this SHA-256.
	// It returns none if the engine does not use the secret.
	MembersWithout(ctx context.Context, secret, sum string) ([]string, error)
}

// Status is the observed state of a member.
type Status struct {
	Ready    bool
	Drained  bool // marked by a drain, and not yet uncordoned
	OneByOne bool // members of this kind are changed one at a time; also set for members that are no longer in the hive
}

// Cluster is the input of an engine.
type Cluster struct {
	Name    string
	Members []Member // all members in the hive, in the order of the hive
	// Run runs a command as root on a node and returns its stdout.
	Run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error)
}

// Member is a node with its role in the engine.
type Member struct {
	Node string
	nixeval.Engine
}

// MembersByKind returns the nodes of a hive that belong to an engine, by the kind of the engine.
func MembersByKind(hive *nixeval.Hive) map[string][]Member {
	out := map[string][]Member{}
	for _, n := range hive.Nodes {
		if u := hive.Unit(n.Unit); u != nil && u.Deployment.Engine != nil {
			e := *u.Deployment.Engine
			out[e.Kind] = append(out[e.Kind], Member{Node: n.Name, Engine: e})
		}
	}
	return out
}
