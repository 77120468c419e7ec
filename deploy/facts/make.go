package facts

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Machine contains the facts about a machine that nixbench boots.
type Machine struct {
	Address netip.Addr // not valid while the address is unknown
	MAC     string
	HostKey string
}

// Make returns the facts of a hive. They contain the nodes of roles whose machines have an address, and the nodes whose
// deployment.targetHost is an address. The same arguments always give the same facts.
func Make(hive *nixeval.Hive, machines map[string]Machine) (*Runtime, error) {
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

// makeEndpoint returns the address of the cluster's API. It returns nil as long as the first node of the role in cluster.endpoint
// has no address.
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
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
