// Package engine is the interface between nixbench and the cluster software that the nodes run together, such as Kubernetes. NixOS
// modules install and configure an engine. nixbench uses an engine only through this package.
//
// The option `deployment.engine` of a node names the engine and the role of the node in the engine. The modules of an engine set that
// option: a hive that imports these modules gets the checks and the update order of the engine.
package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Engine is the cluster software that the nodes run together. Its values can be compared with ==, so implementations are pointers.
//
// An Engine stores nothing about the cluster in itself, so a later run of nixbench can uncordon the members that this run has
// drained. When all nodes of a cluster change to another engine, such as from SLURM to Flux, all members are drained, but the
// cluster keeps its members and its data. The members are uncordoned when their nodes run this engine again.
type Engine interface {
	// Members returns the observed status of each registered member, by node. The map is empty while
	// the cluster does not exist yet. Members returns an error if the engine does not answer.
	Members(ctx context.Context) (map[string]Status, error)
	// Drain moves work away from members before they are changed. It first marks all given members as drained, so that the work of one is
	// not moved to another one of them. Then it waits until the work on these members has ended. Nodes that are not members are ignored. If
	// the drain of one node fails, Drain removes all marks that it has set, and returns a [DrainError] or a [BlockedError] that names that
	// node.
	Drain(ctx context.Context, nodes []string, o DrainOptions, report Report) error
	// Uncordon removes the mark of a drain, so that the member takes work again. It does not wait until
	// the member is ready. It does nothing for a node that is not a member, or that has no mark.
	Uncordon(ctx context.Context, node string) error
	// WaitReady waits until a member works with its current configuration, or until a node of the hive
	// that is not a member yet has joined and works. It changes nothing: a drained member stays drained.
	WaitReady(ctx context.Context, node string, report Report) error

	// Conditions returns the conditions that must hold at the end of a run.
	Conditions(o CheckOptions) []check.Condition
	// RemoveMember removes a node from the list of members that the engine stores. It is called before the machine of the member is
	// removed, and before a recreated machine joins as a new member. If RemoveMember returns an error and the node is still in the list,
	// the node is unchanged.
	RemoveMember(ctx context.Context, node string) error
	// Versions returns the planned version change of each given node, by node. It leaves out nodes whose desired version is the observed
	// version, and members that do not answer. It returns an error of [NewVersionError] if a change is not supported.
	Versions(ctx context.Context, nodes []string) (map[string]Change, error)

	Inspector
}

// Report receives a text for the user: the progress of an operation on a node, or what the operation waits for.
type Report func(node, text string)

type CheckOptions struct {
	Deep bool // add conditions whose probes start workloads
	// Except contains the names of members that an administrator or the engine had taken out of service before the run. The
	// conditions do not require that they take work.
	Except []string
	// Away contains the names of members that may be away and are. The conditions require nothing of them.
	Away []string
}

// Admitter is an engine that must allow a node to join. Admit allows one node to join. It is called for each node that runs its new
// system and is not a member yet. The node retries its join until it is admitted, so the time of the call does not matter. Admit does
// nothing for a node that does not belong to the engine.
type Admitter interface {
	Admit(ctx context.Context, node string) error
}

type Change struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// PlanVersions returns the version changes of the given nodes, and the version of each node after the run, both by node. observed
// contains the running versions of the members. The version in the hive is the setting version of a node; it may be empty.
func (c Cluster) PlanVersions(nodes []string, observed map[string]string) (changes map[string]Change, after map[string]string, _ error) {
	changes, after = map[string]Change{}, maps.Clone(observed)
	for _, m := range c.Members {
		var s struct{ Version string }
		if err := m.ReadSettings(&s); err != nil {
			return nil, nil, err
		}
		if s.Version == "" || !slices.Contains(nodes, m.Node) {
			continue
		}
		after[m.Node] = s.Version
		if from, isMember := observed[m.Node]; isMember && from != s.Version {
			changes[m.Node] = Change{From: from, To: s.Version}
		}
	}
	return changes, after, nil
}

// NewVersionError returns the error for a running version that cannot be changed to the desired version. Its text has both versions and the
// name of the option of the hive. remedy is which versions to set in the hive, or which nodes to deploy first.
func NewVersionError(remedy, format string, args ...any) error {
	return failure.WithHint(failure.WithKind(failure.Activation, fmt.Errorf(format, args...)), remedy)
}

// Certified is an engine whose members stop working when their certificates expire.
type Certified interface {
	// Certificates returns the certificates on a node that the engine uses.
	Certificates(ctx context.Context, node string) ([]Certificate, error)
}

type Certificate struct {
	Name   string    `json:"name"`
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Authority is set for a certificate authority. When it expires, the certificates that it has signed are not valid any more.
	Authority bool `json:"authority,omitempty"`
	// Renewer is the systemd unit on the node that renews the certificate, not later than at the time Due. Renewer is empty if no
	// systemd unit renews the certificate.
	Renewer string    `json:"renewer,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	// Remedy is what the user does about a certificate that no systemd unit renews.
	Remedy string `json:"-"`
}

// Adjuster is an engine that stores settings of its members in the cluster and not in their NixOS
// systems, such as labels. These settings are changed without a deployment of the member.
type Adjuster interface {
	// Adjust changes the settings of the given nodes in the cluster to those in the hive, and returns the differences in
	// words, by node. Nodes that are not members are left out. If dry is set, it only returns the differences.
	Adjust(ctx context.Context, nodes []string, dry bool) (map[string][]string, error)
}

// Keyholder is an engine whose members encrypt stored data with keys from nixbench's vault. A new key
// may be used only after all members have it.
type Keyholder interface {
	// MembersWithout returns the members that do not use the current version of a secret yet. sum is the SHA-256 of that version.
	// MembersWithout returns nil if the engine does not use the secret.
	MembersWithout(ctx context.Context, secret, sum string) ([]string, error)
}

// Status is the state of a member. The fields with names in JSON are in the output of nixbench status.
type Status struct {
	Ready   bool `json:"ready"`
	Drained bool `json:"-"` // a drain has marked the member, and it is not uncordoned yet
	// OneByOne is set if members of this role are changed one at a time, such as control planes. The hive may lack the member.
	OneByOne bool `json:"-"`
	// Cordoned is set if the member takes no new work, because nixbench or an administrator has cordoned or drained it.
	Cordoned bool `json:"cordoned"`
	// Reason is why the member is out of service, if the engine knows it.
	Reason string `json:"-"`
	// Version is the version of the engine's program (such as slurmd) on the member. It is empty if the engine does not report
	// the versions of its members.
	Version string `json:"version,omitempty"`
}

func (s Status) String() string {
	text := "Ready"
	if !s.Ready {
		text = "NotReady"
	}
	if s.Cordoned {
		text += ", cordoned"
	}
	return text
}

// Cluster is what an engine needs to manage the cluster of a hive.
type Cluster struct {
	Name    string
	Members []Member // the nodes of the hive that belong to the engine, in the order of the hive
	// Run runs a command as root on a node and returns its stdout.
	Run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error)
	// Issue signs a client certificate for a user in a group with a certificate authority of nixbench's vault. It
	// returns the authority's certificate, the new certificate, which is valid for a day, and its key, in PEM.
	Issue func(authority, user, group string) (ca, certificate, key []byte, err error)
}

// NodesOf returns the nodes of the hive that have a role in the engine.
func (c Cluster) NodesOf(role string) []string {
	return c.nodesThat(func(m Member) bool { return m.Role == role })
}

// FirstOf returns the first node of the hive that has a role in the engine, or an empty string.
func (c Cluster) FirstOf(role string) string {
	for _, node := range c.NodesOf(role) {
		return node
	}
	return ""
}

// Member returns the member of the hive with this name, or a Member without values if there is none.
func (c Cluster) Member(node string) Member {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Node == node })
	if i < 0 {
		return Member{}
	}
	return c.Members[i]
}

func (c Cluster) Has(node string) bool { return c.Member(node).Node != "" }

// Command runs a command as root on a node for at most [CommandTimeout], and returns its stdout.
func (c Cluster) Command(ctx context.Context, node string, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	return c.Run(ctx, node, nil, argv...)
}

func (c Cluster) nodesThat(match func(Member) bool) []string {
	var out []string
	for _, m := range c.Members {
		if match(m) {
			out = append(out, m.Node)
		}
	}
	return out
}

// Member is a node of the hive with its role in the engine.
type Member struct {
	Node     string
	HiveRole string // the role in the hive to which the node belongs; empty for a node that the hive defines by its own name
	nixeval.Engine
}

// ReadSettings decodes the settings of a member into a struct, which already contains the defaults.
func (m Member) ReadSettings(into any) error {
	if len(m.Settings) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Settings, into); err != nil {
		return failure.On(m.Node, fmt.Errorf("deployment.engine.settings: %w", err))
	}
	return nil
}

// MembersByKind returns the nodes of a hive that belong to an engine. The keys of the map are the kinds
// of the engines, such as "kubernetes".
func MembersByKind(hive *nixeval.Hive) map[string][]Member {
	out := map[string][]Member{}
	for _, n := range hive.Nodes {
		if u := hive.Unit(n.Unit); u != nil && u.Deployment.Engine != nil {
			e := *u.Deployment.Engine
			out[e.Kind] = append(out[e.Kind], Member{Node: n.Name, HiveRole: n.Role, Engine: e})
		}
	}
	return out
}
