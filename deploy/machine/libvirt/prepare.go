package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Prepare creates the network and the pool, and uploads the images.
func (h *Hypervisor) Prepare(ctx context.Context, c provider.Cluster, g provider.HostSetup) error {
	return h.runOperation(ctx, func(s *session) error {
		// Validate all images before the first change.
		for _, i := range g.Images {
			if _, err := checkImage(i, s.host.kind); err != nil && !s.host.test {
				return h.wrapError("", "check the image", err, "build the image again")
			}
		}
		if err := s.prepareNetwork(c, g.Network, g.Reservations); err != nil {
			return h.wrapError("", "prepare the network "+g.Network.Name, err, "")
		}
		p, err := s.ensurePool()
		if err != nil {
			return h.wrapError("", "prepare the storage pool "+h.o.Pool, err, "")
		}
		defer p.free()
		for _, i := range g.Images {
			if err := p.ensureImage(c, i); err != nil {
				return h.wrapError("", "upload the image "+i.Hash, err, "")
			}
		}
		return nil
	})
}

// network is an existing libvirt network.
type network struct {
	n *libvirt.Network
	domainxml.NetworkInfo
	active    bool
	transient bool // the network is active but not defined

	portsRead  bool             // portsKnown and ports are set
	portsKnown bool             // this libvirt can list ports (5.5 and later)
	ports      []domainxml.Port // interfaces connected to the network
}

func (n *network) free() { _ = n.n.Free() }

func describeNetwork(n *libvirt.Network) (*network, error) {
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	found := &network{n: n}
	if found.NetworkInfo, err = domainxml.ParseNetwork(text); err != nil {
		return nil, err
	}
	if found.active, err = n.IsActive(); err != nil {
		return nil, err
	}
	persistent, err := n.IsPersistent()
	found.transient = found.active && !persistent
	return found, err
}

// findNetwork returns the network with this name; nil if there is none.
func (s *session) findNetwork(name string) (*network, error) {
	n, err := s.conn.LookupNetworkByName(name)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := describeNetwork(n)
	if err != nil {
		_ = n.Free()
	}
	return found, err
}

// listNetworks returns all networks, except networks that are removed during the call.
func (s *session) listNetworks() ([]*network, error) {
	all, err := s.conn.ListAllNetworks(0)
	if err != nil {
		return nil, err
	}
	var found []*network
	for i := range all {
		n, err := describeNetwork(&all[i])
		if err != nil {
			_ = all[i].Free()
			continue
		}
		found = append(found, n)
	}
	return found, nil
}

func (s *session) prepareNetwork(c provider.Cluster, want provider.Network, reservations []provider.Reservation) error {
	if want.Mode == provider.Bridge {
		if want.Bridge == "" {
			return s.h.wrapError("", "prepare the network", fmt.Errorf("cluster.network.mode is bridge, and no bridge is set"), "set cluster.network.bridge")
		}
		return nil
	}
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	there, err := s.findNetwork(want.Name)
	if err != nil {
		return err
	}
	if there != nil {
		defer there.free()
	}
	op := "prepare the network " + want.Name
	switch {
	case want.Mode == provider.Existing && there == nil:
		return s.h.wrapError("", op, fmt.Errorf("there is no such network"), `define it, or set cluster.network.mode to "nat"`)
	case want.Mode == provider.Existing && !there.active:
		return s.h.wrapError("", op, fmt.Errorf("it is not active"), "start it: virsh net-start "+want.Name)
	case want.Mode == provider.Existing:
		return nil
	case there != nil && !there.BelongsTo(c):
		return s.h.wrapError("", op, s.newForeignError(there.Mark), `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"`)
	case there == nil || !hasSameSettings(there, want):
		if err := s.checkRange(want); err != nil {
			return err
		}
		if there != nil {
			if err := s.removeUnusedNetwork(c, there, want); err != nil {
				return err
			}
		}
		return s.createNetwork(c, want, reservations)
	}
	if !there.active {
		if err := s.beforeChange("start the network"); err != nil {
			return err
		}
		if err := there.n.Create(); err != nil {
			return err
		}
	}
	if there.transient { // the network was undefined while it was active
		if err := s.redefineNetwork(c, there, want); err != nil {
			return err
		}
	}
	if err := there.n.SetAutostart(true); err != nil {
		return err
	}
	return s.updateReservations(there, reservations)
}

func (s *session) newForeignError(mark *domainxml.NetworkMark) error {
	if mark != nil {
		return fmt.Errorf("%w: it belongs to cluster %s (%s)", provider.ErrForeign, mark.Cluster, mark.ID)
	}
	return provider.ErrForeign
}

// hasSameSettings reports whether an existing network has the mode, the DNS domain and the range of want.
func hasSameSettings(n *network, want provider.Network) bool {
	return n.Mode == want.Mode && n.Domain == want.Domain && len(n.CIDRs) == 1 && n.CIDRs[0] == want.CIDR.Masked()
}

// checkRange returns an error if the range of another network overlaps the range of want.
func (s *session) checkRange(want provider.Network) error {
	all, err := s.listNetworks()
	if err != nil {
		return err
	}
	for _, n := range all {
		defer n.free()
		i := slices.IndexFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Overlaps(want.CIDR) })
		if n.Name != want.Name && i >= 0 {
			return s.h.wrapError("", "prepare the network "+want.Name,
				fmt.Errorf("%w: network %s needs %s, and network %s has %s", provider.ErrClash, want.Name, want.CIDR, n.Name, n.CIDRs[i]),
				"choose another cluster.network.cidr")
		}
	}
	return nil
}

// removeUnusedNetwork removes a network of the cluster whose settings have changed. It returns an error if
// machines use the network.
func (s *session) removeUnusedNetwork(c provider.Cluster, n *network, want provider.Network) error {
	users, err := s.listNetworkUsers(c, n)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return s.h.wrapError("", "change the network "+n.Name,
			fmt.Errorf("it is %s %v and must become %s %s, but these machines use it: %s", n.Mode, n.CIDRs, want.Mode, want.CIDR, strings.Join(users, ", ")),
			"destroy the machines first, or leave the network as it was")
	}
	return s.removeNetwork(n)
}

func (s *session) removeNetwork(n *network) error {
	if err := s.beforeChange("remove the network"); err != nil {
		return err
	}
	if n.active {
		if err := n.n.Destroy(); err != nil && !isNotFound(err) {
			return err
		}
	}
	if err := n.n.Undefine(); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

func (s *session) createNetwork(c provider.Cluster, want provider.Network, reservations []provider.Reservation) error {
	if s.host.test {
		reservations = nil
	}
	n, err := s.defineNetwork(c, want, reservations)
	if err != nil {
		return err
	}
	defer func() { _ = n.Free() }()
	if err := s.beforeChange("start the network"); err != nil {
		return err
	}
	if err := n.Create(); err != nil {
		return err
	}
	return n.SetAutostart(true)
}

func (s *session) defineNetwork(c provider.Cluster, want provider.Network, reservations []provider.Reservation) (*libvirt.Network, error) {
	text, err := domainxml.Network(c, want, reservations)
	if err != nil {
		return nil, err
	}
	if err := s.beforeChange("define the network"); err != nil {
		return nil, err
	}
	return s.conn.NetworkDefineXML(text)
}

// redefineNetwork defines an active network that has no definition, with its current reservations. Afterwards
// the reservations can be changed.
func (s *session) redefineNetwork(c provider.Cluster, there *network, want provider.Network) error {
	n, err := s.defineNetwork(c, want, there.Reservations)
	if err != nil {
		return err
	}
	return n.Free()
}

// updateReservations removes reservations that want does not contain, and adds missing reservations. It keeps
// reservations without a name, which a user has added.
func (s *session) updateReservations(n *network, want []provider.Reservation) error {
	if s.host.test {
		return nil
	}
	var keep []provider.Reservation
	for _, r := range n.Reservations {
		if r.Node == "" || slices.Contains(want, r) {
			keep = append(keep, r)
			continue
		}
		if err := s.updateReservation(n.n, libvirt.NETWORK_UPDATE_COMMAND_DELETE, r); err != nil {
			return err
		}
	}
	for _, r := range want {
		if slices.Contains(keep, r) {
			continue
		}
		if err := s.updateReservation(n.n, libvirt.NETWORK_UPDATE_COMMAND_ADD_LAST, r); err != nil {
			return s.h.wrapError(r.Node, fmt.Sprintf("reserve %s", r.Address), err, "")
		}
	}
	return nil
}

func (s *session) updateReservation(n *libvirt.Network, command libvirt.NetworkUpdateCommand, r provider.Reservation) error {
	text, err := domainxml.Reservation(r)
	if err != nil {
		return err
	}
	if err := s.beforeChange("change the reservation of " + r.Node); err != nil {
		return err
	}
	flags := libvirt.NETWORK_UPDATE_AFFECT_CONFIG
	if active, err := n.IsActive(); err == nil && active {
		flags |= libvirt.NETWORK_UPDATE_AFFECT_LIVE
	}
	return n.Update(command, libvirt.NETWORK_SECTION_IP_DHCP_HOST, -1, text, flags)
}
