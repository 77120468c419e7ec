package facts

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/nixbench/nixbench/nixeval"
)

// Machine is what is known of a node that nixbench boots.
type Machine struct {
	Address netip.Addr // invalid where it is not known yet
	MAC     string
	HostKey string
}

// EndpointError says why cluster.endpoint cannot be made an address.
type EndpointError struct{ Text, Fix string }

func (e *EndpointError) Error() string { return "cluster.endpoint: " + e.Text }

// Hint is shown below the message.
func (e *EndpointError) Hint() string { return e.Fix }

// Make puts the facts together: the nodes of roles where their machines have
// addresses, and named nodes whose deployment.targetHost is one. Equal arguments give equal facts.
func Make(hive *nixeval.Hive, machines map[string]Machine) (*Runtime, error) {
	r := &Runtime{Version: Version, Cluster: hive.ClusterName(), Nodes: map[string]Node{}, Roles: map[string][]string{}}
	for role := range hive.Roles {
		r.Roles[role] = []string{}
	}
	for _, n := range hive.Nodes {
		if m := machines[n.Name]; n.Role != "" && m.Address.IsValid() {
			r.Nodes[n.Name] = Node{Role: n.Role, Index: n.Index, Address: m.Address, MAC: m.MAC, HostKey: m.HostKey}
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
	// Without roles nobody is on that network.
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

// LiteralAddress is the address that deployment.targetHost names, if it does not name a host.
func LiteralAddress(hive *nixeval.Hive, n nixeval.Node) (netip.Addr, bool) {
	unit := hive.Unit(n.Unit)
	if unit == nil || unit.Deployment.TargetHost == nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(*unit.Deployment.TargetHost)
	return a, err == nil
}

// makeEndpoint is nil as long as its node has no address.
func makeEndpoint(hive *nixeval.Hive, r *Runtime) (*Endpoint, error) {
	e := hive.Cluster.Endpoint
	switch {
	case e == nil:
		return nil, nil
	case e.Address != nil && e.Role != nil:
		return nil, &EndpointError{"it has both a role and an address", "keep one of them"}
	case e.Address != nil:
		a, err := netip.ParseAddr(*e.Address)
		if err != nil {
			return nil, &EndpointError{fmt.Sprintf("%q is no address", *e.Address), "an IP address, such as 192.168.222.5"}
		}
		return &Endpoint{Address: a, Port: e.Port}, nil
	case e.Role == nil:
		return nil, &EndpointError{"it has neither a role nor an address", "cluster.endpoint.role = \"…\" means that role's first node"}
	}
	role, ok := hive.Roles[*e.Role]
	if !ok {
		return nil, &EndpointError{fmt.Sprintf("there is no role %s", *e.Role), "name one of the hive's roles"}
	}
	if role.Count == 0 {
		return nil, &EndpointError{fmt.Sprintf("role %s has no node", *e.Role), fmt.Sprintf("roles.%s.count must be 1 or more", *e.Role)}
	}
	if n, ok := r.Nodes[*e.Role+"-1"]; ok {
		return &Endpoint{Address: n.Address, Port: e.Port}, nil
	}
	return nil, nil
}

// Encode gives the bytes of runtime.json.
func (r *Runtime) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
