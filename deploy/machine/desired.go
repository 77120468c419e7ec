package machine

import (
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// Boots reports whether nixbench boots the node's machine. A node of a role that has a
// deployment.targetHost (set with mkForce) is an existing machine, which nixbench does not manage.
func Boots(hive *nixeval.Hive, n nixeval.Node) bool {
	return n.Role != "" && hive.Cluster != nil && len(hive.Unit(n.Unit).Deployment.TargetHosts) == 0
}

func Booted(hive *nixeval.Hive, nodes []nixeval.Node) []nixeval.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return !Boots(hive, n) })
}

func desiredMachines(hive *nixeval.Hive) []changes.Desired {
	var out []changes.Desired
	for _, n := range Booted(hive, hive.Nodes) {
		r := hive.Roles[n.Role]
		w := changes.Desired{On: r.Hypervisors, Spec: provider.Spec{
			Node: n.Name, Role: n.Role, Index: n.Index, VCPUs: r.VCPUs, Pins: r.CPUPins, Memory: provider.ParseSize(r.Memory),
			Disk: provider.ParseSize(r.Disk), Firmware: provider.Firmware(r.Firmware), Init: r.Init, XML: r.XML,
		}}
		for _, size := range r.Disks {
			w.Disks = append(w.Disks, provider.ParseSize(size))
		}
		out = append(out, w)
	}
	return out
}

func desiredNetwork(hive *nixeval.Hive) (provider.Network, error) {
	n := hive.Cluster.Network
	out := provider.Network{Name: n.Name, Mode: provider.Mode(n.Mode), Domain: n.Domain}
	if n.Bridge != nil {
		out.Bridge = *n.Bridge
	}
	if out.Mode == provider.Bridge && out.Bridge == "" {
		return out, changes.NewPlanError(`cluster.network.bridge = "br0"; or mode = "nat"`,
			"cluster.network.mode is bridge, and cluster.network.bridge is null")
	}
	if !out.Mode.Ours() {
		return out, nil
	}
	cidr, err := netip.ParsePrefix(n.CIDR)
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() > 29 || cidr.Bits() < 8 {
		return out, changes.NewPlanError("such as 192.168.222.0/24",
			"cluster.network.cidr: %s is not a range of IPv4 addresses from /8 to /29", n.CIDR)
	}
	out.CIDR = cidr.Masked()
	return out, nil
}

// fixedAddresses returns the addresses in the hive that no machine may get, with the option that sets each
// address: the addresses of nodes whose machines nixbench does not manage, and the address of the cluster's endpoint.
func fixedAddresses(hive *nixeval.Hive) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, n := range hive.Nodes {
		if a, ok := facts.LiteralAddress(hive, n); ok {
			out[a] = "the deployment.targetHost of node " + n.Name
		}
	}
	if c := hive.Cluster; c != nil && c.Endpoint != nil && c.Endpoint.Address != nil {
		// facts.Make reports an invalid address.
		if a, err := netip.ParseAddr(*c.Endpoint.Address); err == nil {
			out[a] = "cluster.endpoint"
		}
	}
	return out
}
