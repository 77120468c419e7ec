package nixeval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
)

// Hive is the result of a survey: everything in the user's hive that is cheap to evaluate. The contents of deployment.keys are
// secret, and have the type [Secret].
type Hive struct {
	Meta    Meta
	Cluster *Cluster // nil if the hive was evaluated by Colmena's makeHive
	Roles   map[string]Role
	Nodes   []Node // in natural order: worker-2 before worker-10
	Units   []Unit // units with at least one node, in the order of their first nodes
	// Broken maps the name of a unit to the reason why its deployment options cannot be evaluated or are invalid. The field
	// Deployment of such a unit is empty.
	Broken map[string]*NixError
}

type Meta struct {
	Name          string `json:"name"`
	Description   string `json:"description"`
	MachinesFile  string `json:"machinesFile"` // the file that lists remote builders; null and "": none
	AllowApplyAll bool   `json:"allowApplyAll"`
}

type Cluster struct {
	Name        *string               `json:"name"`
	Declared    bool                  `json:"declared"`  // the hive sets `cluster`
	Scheduler   string                `json:"scheduler"` // null and "": the hive has no schedulers
	Network     Network               `json:"network"`
	Endpoint    *Endpoint             `json:"endpoint"`
	Hypervisors map[string]Hypervisor `json:"hypervisors"`
}

type Network struct {
	Name   string  `json:"name"`
	CIDR   string  `json:"cidr"`
	Mode   string  `json:"mode"`
	Bridge *string `json:"bridge"`
	Domain string  `json:"domain"`
}

// Endpoint is the address of the cluster's API. Port is 0 if the hive sets no port.
type Endpoint struct {
	Role    *string `json:"role"`
	Address *string `json:"address"`
	Port    int     `json:"port"`
}

type Hypervisor struct {
	Kind     string `json:"kind"`
	URI      string `json:"uri"`
	Pool     string `json:"pool"`
	PoolPath string `json:"poolPath"`
}

// Role is a template for Count nodes that are the same except for their names.
type Role struct {
	Count       int      `json:"count"`
	Hollow      int      `json:"hollow,omitempty"` // number of nodes of the cluster that each machine stands for; 0: the machine is one node
	VCPUs       int      `json:"vcpus"`
	Memory      string   `json:"memory"`
	Disk        string   `json:"disk"`
	Disks       []string `json:"disks"`
	CPUPins     []string `json:"cpuPins"`
	Hypervisors []string `json:"hypervisors"` // names of the hypervisors that may run the role's machines; empty: all hypervisors
	Firmware    string   `json:"firmware"`
	Init        string   `json:"init"`
	XML         string   `json:"xml"`
	Tags        []string `json:"tags"`
	PerNode     bool     `json:"perNode"`
	Image       *string  `json:"image"`
}

// Node is one machine of the cluster.
type Node struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Role  string   `json:"role,omitempty"`
	Index int      `json:"index,omitempty"` // number of the node in its role: 1 for worker-1
	Tags  []string `json:"tags"`
}

// Unit is the set of nodes that share one closure: a single node, or all nodes of a role. Each unit
// is evaluated and built once.
type Unit struct {
	Name       string
	Nodes      []string
	Deployment Deployment
}

// Deployment contains the options in `deployment` of a unit. They are the same as in Colmena, except for optional,
// healthChecks, engine, client, modules and sshConfig.
type Deployment struct {
	TargetHosts                TargetHosts            `json:"targetHost"`
	TargetPort                 *int                   `json:"targetPort"`
	TargetUser                 *string                `json:"targetUser"`
	SSHOptions                 []string               `json:"sshOptions"`
	PrivilegeEscalationCommand []string               `json:"privilegeEscalationCommand"`
	AllowLocalDeployment       bool                   `json:"allowLocalDeployment"`
	BuildOnTarget              bool                   `json:"buildOnTarget"`
	ReplaceUnknownProfiles     bool                   `json:"replaceUnknownProfiles"`
	Optional                   bool                   `json:"optional"` // the node may be away
	Tags                       []string               `json:"tags"`
	Keys                       map[string]Key         `json:"keys"`
	HealthChecks               map[string]HealthCheck `json:"healthChecks"`
	Engine                     *Engine                `json:"engine"`    // null: the node is not a cluster member
	Client                     *string                `json:"client"`    // kind of the engine whose client programs the node has, such as slurm for a login node; null: it has none
	Modules                    *string                `json:"modules"`   // the folder from which the system imports nixbench's modules
	SSHConfig                  bool                   `json:"sshConfig"` // the node's system does not declare these options: only the SSH configuration names its host and user
}

// Engine describes a node's cluster membership: the kind of cluster and the node's role in it.
type Engine struct {
	Kind     string          `json:"kind"`     // such as `kubernetes`
	Role     string          `json:"role"`     // name of the node's role in this kind of cluster
	OneByOne bool            `json:"oneByOne"` // the members with OneByOne change one at a time, because all others depend on them: control planes, controllers
	Order    int             `json:"order"`    // members with a lower order change first
	Settings json.RawMessage `json:"settings"`
}

type Key struct {
	Name        string     `json:"name"`
	Text        *Secret    `json:"text"`
	KeyFile     *string    `json:"keyFile"`
	FileHash    string     `json:"fileHash"` // in a surveyResult: the SHA-256 of KeyFile if it is in the store; see findKeyFiles
	KeyCommand  []string   `json:"keyCommand"`
	Generated   *Generated `json:"generated"`
	DestDir     string     `json:"destDir"`
	Path        string     `json:"path"`
	User        string     `json:"user"`
	Group       string     `json:"group"`
	Permissions string     `json:"permissions"`
	UploadAt    string     `json:"uploadAt"`
}

// Generated is the source of a key that nixbench generates.
type Generated struct {
	Secret string `json:"secret"` // name of the secret
	Kind   string `json:"kind"`
	Part   string `json:"part"`
	Bytes  int    `json:"bytes"` // only for kind random
}

// Secret is a text that must not appear in a log, error, event or JSON output: there, `(secret)` replaces it. Only the code that
// uploads keys calls Reveal.
type Secret struct{ text string }

func NewSecret(text string) *Secret { return &Secret{text} }

func (s Secret) Reveal() string { return s.text }

func (Secret) String() string               { return "(secret)" }
func (Secret) GoString() string             { return "(secret)" }
func (Secret) LogValue() slog.Value         { return slog.StringValue("(secret)") }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"(secret)"`), nil }

// UnmarshalJSON decodes the JSON string that Nix prints.
func (s *Secret) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &s.text) }

var notNameRE = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// ClusterName returns cluster.name, or meta.name if it is not set. The names of the cluster's machines and of its state folder
// contain it. In Colmena's hives meta.name may be any text, so ClusterName replaces characters that file names should not contain
// by a hyphen.
func (h *Hive) ClusterName() string {
	if h.Cluster != nil && h.Cluster.Name != nil {
		return *h.Cluster.Name
	}
	if name := strings.Trim(notNameRE.ReplaceAllString(h.Meta.Name, "-"), ".-"); name != "" {
		return name
	}
	return "hive"
}

// Scheduler returns the scheduler that the hive or --set has chosen, or an empty string.
func (h *Hive) Scheduler() string {
	if h.Cluster == nil {
		return ""
	}
	return h.Cluster.Scheduler
}

// Unit returns the unit (a node, or all nodes of a role) with this name, or nil.
func (h *Hive) Unit(name string) *Unit {
	if i := slices.IndexFunc(h.Units, func(u Unit) bool { return u.Name == name }); i >= 0 {
		return &h.Units[i]
	}
	return nil
}

// surveyResult is the JSON that nix/eval.nix returns for a survey.
type surveyResult struct {
	Meta        Meta                  `json:"meta"`
	Cluster     *Cluster              `json:"cluster"`
	Roles       map[string]Role       `json:"roles"`
	Named       []string              `json:"named"`
	Units       []string              `json:"units"`
	Deployments map[string]Deployment `json:"deployments"`
}

func (s surveyResult) anyKey(property func(Key) bool) bool {
	for _, d := range s.Deployments {
		for _, key := range d.Keys {
			if property(key) {
				return true
			}
		}
	}
	return false
}

func (k Key) hasText() bool { return k.Text != nil }

// isDeleted reports whether the file of the key was in the Nix store, and the garbage collector has deleted it.
func (k Key) isDeleted() bool {
	return k.KeyFile != nil && strings.HasPrefix(*k.KeyFile, "/nix/store/") && !durable.Exists(*k.KeyFile)
}

// nodeNameRE matches valid names of named nodes: file names without the special characters of --on. roleNameRE matches valid names
// of roles. The names of machines contain the name of a role, so it must be valid for host names and for libvirt.
var (
	nodeNameRE = regexp.MustCompile(`^[^\s/\\,!@*?\[\]\x00-\x1f\x7f.][^\s/\\,*?\[\]\x00-\x1f\x7f]*$`)
	roleNameRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
)

// newHive converts the result of a survey to a Hive, and adds the nodes of all roles. It returns an error for an invalid or
// duplicate name. broken maps a unit to the error of its evaluation; units whose options have invalid values are added in Broken.
func newHive(s surveyResult, broken map[string]*NixError) (*Hive, error) {
	h := &Hive{Meta: s.Meta, Cluster: s.Cluster, Roles: s.Roles, Broken: map[string]*NixError{}}
	maps.Copy(h.Broken, broken)
	if name := h.ClusterName(); len(name) > maxCluster {
		return nil, newHiveError("the cluster's name %q… is longer than %d bytes; set a shorter meta.name or cluster.name", name[:20], maxCluster)
	}
	var err error
	if h.Nodes, err = listNodes(s); err != nil {
		return nil, err
	}
	unitAt := map[string]int{}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		d := s.Deployments[n.Unit]
		n.Tags = append(slices.Clone(d.Tags), s.Roles[n.Role].Tags...)
		slices.Sort(n.Tags)
		n.Tags = slices.Compact(n.Tags)
		at, seen := unitAt[n.Unit]
		if !seen {
			at = len(h.Units)
			unitAt[n.Unit] = at
			if err := d.checkOptions(); err != nil && h.Broken[n.Unit] == nil {
				h.Broken[n.Unit], d = newHiveError("%v", err), Deployment{}
			}
			h.Units = append(h.Units, Unit{Name: n.Unit, Deployment: d})
		}
		h.Units[at].Nodes = append(h.Units[at].Nodes, n.Name)
	}
	return h, nil
}

// listNodes returns the named nodes and the nodes of roles in natural order, without their tags.
func listNodes(s surveyResult) ([]Node, error) {
	var nodes []Node
	owner := map[string]string{} // name → the node or role with that name, for messages
	claim := func(name, who string) error {
		if other, taken := owner[name]; taken {
			return newHiveError("%s and %s have the same name; rename one of them", other, who)
		}
		owner[name] = who
		return nil
	}
	for _, name := range s.Named {
		if !nodeNameRE.MatchString(name) {
			return nil, newHiveError("node %q: a node's name has no spaces, `/`, `\\`, `,`, `*`, `?`, `[` or `]`, and does not begin with `.`, `!` or `@`", name)
		}
		if err := checkText(name, maxNodeName); err != nil {
			return nil, newHiveError("node %v", err)
		}
		if err := claim(name, fmt.Sprintf("node %q", name)); err != nil {
			return nil, err
		}
		nodes = append(nodes, Node{Name: name, Unit: name})
	}
	for _, role := range slices.Sorted(maps.Keys(s.Roles)) {
		if !roleNameRE.MatchString(role) {
			return nil, newHiveError("role %q: a role's name has letters, digits, `_`, `-` and `.`, and begins with a letter, a digit or `_`", role)
		}
		if err := claim(role, fmt.Sprintf("role %q", role)); err != nil {
			return nil, err
		}
		r := s.Roles[role]
		if err := checkText(fmt.Sprintf("%s-%d", role, r.Count), maxHostLabel); err != nil {
			return nil, newHiveError("role: the node %v", err)
		}
		for i := 1; i <= r.Count; i++ {
			n := Node{Name: fmt.Sprintf("%s-%d", role, i), Unit: role, Role: role, Index: i}
			if err := claim(n.Name, fmt.Sprintf("node %q of role %q", n.Name, role)); err != nil {
				return nil, err
			}
			if r.PerNode {
				n.Unit = n.Name
			}
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return CompareNatural(a.Name, b.Name) })
	return nodes, nil
}

// CompareNatural compares node names, so that worker-2 comes before worker-10: it compares the numbers in names by their values.
// It returns 0 only for equal names.
func CompareNatural(a, b string) int {
	whole := strings.Compare(a, b)
	for a != "" && b != "" {
		da, db := leadingDigits(a), leadingDigits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Or(len(na)-len(nb), strings.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Or(len(a)-len(b), whole)
}

// SortedNames returns the keys of a map, such as names of nodes, in natural order.
func SortedNames[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), CompareNatural)
}

func leadingDigits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
