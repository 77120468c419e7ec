// Package facts reads and writes runtime.json: the facts about a cluster that are known only at run time and
// may be public. The evaluation passes the facts to every module as the argument `runtime`, so every value may
// be copied to the world-readable store. The facts contain the names and paths of tokens, never their values.
package facts

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Version is the version of the format. [Parse] refuses other versions.
const Version = 1

// Schema is the JSON Schema of runtime.json.
//
//go:embed schema.json
var Schema string

type Runtime struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Nodes maps the name of a node to its facts. Roles maps the name of a role to the names of its nodes, in order.
	Nodes map[string]Node     `json:"nodes"`
	Roles map[string][]string `json:"roles"`
	// Network is the network that contains the addresses of the nodes.
	Network *Network `json:"network,omitempty"`
	// Endpoint is the address of the cluster's API, for engines that have one.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// CAHash is the hash of the public key of the generated certificate authority cluster-ca, such as sha256:4f2a….
	CAHash string `json:"caHash,omitempty"`
	// Secrets maps the name of a secret to the path of its file on the nodes.
	Secrets map[string]Secret `json:"secrets,omitempty"`
}

type Network struct {
	Name string       `json:"name"`
	CIDR netip.Prefix `json:"cidr"`
}

// Node is one machine.
type Node struct {
	Role    string     `json:"role,omitempty"`
	Index   int        `json:"index,omitempty"`
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac,omitempty"`
	// HostKey is the public SSH host key, in the format of known_hosts.
	HostKey string `json:"hostKey,omitempty"`
	// VCPUs and Memory are the size of a machine that nixbench boots, as the role in the hive has them.
	VCPUs  int    `json:"vcpus,omitempty"`
	Memory string `json:"memory,omitempty"`
	// Hollow is how many nodes of the cluster the machine stands for. 0 means that the machine is one node.
	Hollow int `json:"hollow,omitempty"`
}

// Endpoint is the address and port of the cluster's API. Port is 0 if neither the hive nor the cluster's engine sets a port.
type Endpoint struct {
	Address netip.Addr `json:"address"`
	Port    int        `json:"port,omitempty"`
}

// Secret describes a secret without its content: the path of its file, and the SHA-256 of its content, which changes
// with each new version of the secret.
type Secret struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	// PublicKeyHash is the hash of the public key in a certificate. It is empty for secrets that are no certificates.
	PublicKeyHash string `json:"publicKeyHash,omitempty"`
}

// Load reads a runtime.json. Unknown fields are an error.
func Load(file string) (*Runtime, error) {
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return nil, err
	}
	r, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Parse decodes facts, and checks that the cluster has a name and each node an address. The JSON schema describes the rest.
func Parse(data []byte) (*Runtime, error) {
	var r Runtime
	if _, err := durable.DecodeJSON(data, Version, &r); err != nil {
		return nil, err
	}
	if r.Cluster == "" {
		return nil, errors.New("cluster: it has no name")
	}
	for name, n := range r.Nodes {
		if !n.Address.IsValid() {
			return nil, fmt.Errorf("nodes.%s: it has no address", name)
		}
	}
	return &r, nil
}

// Make returns the facts of a hive. They contain the nodes of roles whose machines have an address, and the nodes whose
// deployment.targetHost is an address. The same arguments always give the same facts.
func Make(hive *nixeval.Hive, machines map[string]state.Machine) (*Runtime, error) {
	r := &Runtime{Version: Version, Cluster: hive.ClusterName(), Nodes: map[string]Node{}, Roles: map[string][]string{}}
	for role := range hive.Roles {
		r.Roles[role] = []string{}
	}
	for _, n := range hive.Nodes {
		if m := machines[n.Name]; n.Role != "" && m.Address.IsValid() {
			role := hive.Roles[n.Role]
			r.Nodes[n.Name] = Node{Role: n.Role, Index: n.Index, Address: m.Address, MAC: m.MAC, HostKey: m.HostKey, VCPUs: role.VCPUs, Memory: role.Memory, Hollow: role.Hollow}
		} else if a, ok := LiteralAddress(hive, n); ok {
			r.Nodes[n.Name] = Node{Role: n.Role, Index: n.Index, Address: a}
		} else {
			continue
		}
		if n.Role != "" {
			r.Roles[n.Role] = append(r.Roles[n.Role], n.Name)
		}
	}
	if hive.Cluster == nil {
		return r, nil
	}
	// The network counts only if the hive has roles: without roles, no node is in it.
	if net := hive.Cluster.Network; len(hive.Roles) > 0 && (net.Mode == "nat" || net.Mode == "isolated") {
		cidr, err := netip.ParsePrefix(net.CIDR)
		if err != nil {
			return nil, fmt.Errorf("cluster.network.cidr: %w", err)
		}
		r.Network = &Network{Name: net.Name, CIDR: cidr.Masked()}
	}
	var err error
	r.Endpoint, err = makeEndpoint(hive, r)
	return r, err
}

// LiteralAddress returns the first host of deployment.targetHost that is an address and not a host name.
func LiteralAddress(hive *nixeval.Hive, n nixeval.Node) (netip.Addr, bool) {
	unit := hive.Unit(n.Unit)
	if unit == nil {
		return netip.Addr{}, false
	}
	for _, host := range unit.Deployment.TargetHosts {
		if a, err := netip.ParseAddr(host); err == nil {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// makeEndpoint returns the address of the cluster's API; nil: the first node of the role in cluster.endpoint has no address yet.
func makeEndpoint(hive *nixeval.Hive, r *Runtime) (*Endpoint, error) {
	e := hive.Cluster.Endpoint
	fail := func(format string, args ...any) error {
		return failure.WithKind(failure.Provision, fmt.Errorf("cluster.endpoint: "+format, args...))
	}
	switch {
	case e == nil:
		return nil, nil
	case (e.Address == nil) == (e.Role == nil):
		return nil, fail("it must have either an address or a role, whose first node it then means")
	case e.Role != nil && hive.Roles[*e.Role].Count == 0:
		return nil, fail("role %s has no node; name a role of the hive with a count of 1 or more", *e.Role)
	case e.Role != nil:
		if n, ok := r.Nodes[*e.Role+"-1"]; ok {
			return &Endpoint{Address: n.Address, Port: e.Port}, nil
		}
		return nil, nil
	}
	a, err := netip.ParseAddr(*e.Address)
	if err != nil {
		return nil, fail("%q is no address; it must be an IP address, such as 192.168.222.5", *e.Address)
	}
	return &Endpoint{Address: a, Port: e.Port}, nil
}

// Encode returns the content of runtime.json.
func (r *Runtime) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}
