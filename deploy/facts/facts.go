package facts

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nixbench/nixbench/deploy/durable"
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
