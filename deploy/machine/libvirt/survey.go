package libvirt

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func (h *Hypervisor) Survey(ctx context.Context, c provider.Cluster, net provider.Network) (provider.Inventory, error) {
	return query(ctx, h, "", "survey the hypervisor", "", func(s *session) (provider.Inventory, error) { return s.readInventory(c, net) })
}

func (s *session) readInventory(c provider.Cluster, net provider.Network) (provider.Inventory, error) {
	inventory := provider.Inventory{
		Kind: s.host.kind, Host: s.host.id, FreeMemory: readFreeMemory(s.conn), Emulated: s.host.Type == "qemu",
	}
	parts, err := s.readPool(c)
	if err != nil {
		return inventory, err
	}
	nets, err := s.listNetworks()
	if hasCode(err, libvirt.ERR_NO_SUPPORT, libvirt.ERR_ARGUMENT_UNSUPPORTED) {
		return inventory, s.h.wrapError("", "list the networks", err, "install libvirt's network driver there (package libvirt-daemon-driver-network)")
	}
	if err != nil {
		return inventory, err
	}
	addresses := surveyNetworks(nets, c, net, &inventory)
	domains, err := s.listDomains()
	if err != nil {
		return inventory, err
	}
	machines := map[string]provider.Actual{}
	for node := range parts.nodes {
		machines[node] = provider.Actual{Node: node, State: provider.Incomplete, HasDisk: parts.names[s.host.rootVolumeName(c, node)]}
	}
	for _, d := range domains {
		if !d.IsMachineOf(c) {
			inventory.Foreign = append(inventory.Foreign, d.Name)
			continue
		}
		state, err := stateOf(d.d)
		if err != nil {
			continue // the domain was removed during the survey
		}
		f := provider.Actual{
			Node: d.Mark.Node, Role: d.Mark.Role, MAC: d.MAC, Address: addresses[d.MAC], VCPUs: d.VCPUs, Memory: d.Memory,
			Image: d.Mark.Image, State: state, Definition: d.Mark.Definition,
		}
		if state == provider.Running || state == provider.Paused {
			f.Process = d.process()
		}
		// A machine that is off and has no root disk is incomplete. A machine that runs still has its root disk open, even
		// if the pool does not list the disk.
		if state == provider.Off && parts.active && !parts.names[s.host.rootVolumeName(c, f.Node)] {
			f.State = provider.Incomplete
		}
		machines[f.Node] = f
	}
	for _, node := range slices.Sorted(maps.Keys(machines)) {
		inventory.Machines = append(inventory.Machines, machines[node])
	}
	slices.Sort(inventory.Foreign)
	return inventory, nil
}

// surveyNetworks sets the inventory's Network to the network with the name of want. It returns the addresses reserved in networks of the
// cluster, by MAC.
func surveyNetworks(all []*network, c provider.Cluster, want provider.Network, inventory *provider.Inventory) map[string]netip.Addr {
	addresses := map[string]netip.Addr{}
	for _, n := range all {
		if n.BelongsTo(c) {
			for _, r := range n.Reservations {
				addresses[r.MAC] = r.Address
			}
		}
		if n.Name != want.Name || want.Mode == provider.Bridge {
			continue
		}
		inventory.Network = &provider.ActualNetwork{Ours: n.BelongsTo(c), Active: n.active, Reservations: n.Reservations}
		if !n.BelongsTo(c) {
			for i := range inventory.Network.Reservations {
				inventory.Network.Reservations[i].Node = ""
			}
		}
		if len(n.CIDRs) > 0 {
			inventory.Network.CIDR = n.CIDRs[0]
		}
		if n.active {
			inventory.Network.Leases = listLeases(n.n)
		}
	}
	return addresses
}

// poolContents is the content of the pool, read from the names of volumes.
type poolContents struct {
	nodes  map[string]bool // the nodes of the cluster that have a volume in the pool
	names  map[string]bool // names of all volumes
	active bool            // whether the pool is active; the content of an inactive pool is unknown
}

func (s *session) readPool(c provider.Cluster) (poolContents, error) {
	all := poolContents{nodes: map[string]bool{}, names: map[string]bool{}}
	p, err := s.findPool()
	if err != nil || p == nil {
		return all, err
	}
	if err := p.refresh(); err != nil {
		return all, err
	}
	names, err := p.p.ListStorageVolumes()
	if err != nil {
		return all, err
	}
	for _, name := range names {
		all.names[name] = true
		if m := machineVolumePattern.FindStringSubmatch(name); m != nil && m[1] == shortID(c) && s.host.usesVolumeSuffix(m[3]) {
			all.nodes[m[2]] = true
		}
	}
	all.active = true
	return all, nil
}
