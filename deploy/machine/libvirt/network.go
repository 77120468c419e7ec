package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type network struct {
	*session
	n *libvirt.Network
	networkInfo
	active bool
}

func (s *session) describeNetwork(n *libvirt.Network) (*network, error) {
	s.freeAtEnd(n)
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	found := &network{session: s, n: n}
	if found.networkInfo, err = parseNetwork(text); err != nil {
		return nil, err
	}
	found.active, err = n.IsActive()
	return found, err
}

func (s *session) findNetwork(name string) (*network, error) {
	n, err := s.conn.LookupNetworkByName(name)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.describeNetwork(n)
}

func (s *session) listNetworks() ([]*network, error) {
	all, err := s.conn.ListAllNetworks(0)
	if err != nil {
		return nil, err
	}
	var found []*network
	for i := range all {
		if n, err := s.describeNetwork(&all[i]); err == nil {
			found = append(found, n)
		}
	}
	return found, nil
}

// prepareNetwork creates or starts the network that the cluster wants. A network with other settings is removed and
// created again. A network of mode existing must exist and be active.
func (s *session) prepareNetwork(c provider.Cluster, want provider.Network, reservations []provider.Reservation) error {
	op := "prepare the network " + want.Name
	if want.Mode == provider.Bridge {
		return nil
	}
	there, err := s.findNetwork(want.Name)
	switch {
	case err != nil:
		return err
	case want.Mode == provider.Existing && (there == nil || !there.active):
		return errors.New("there is no such network, or it is not active")
	case want.Mode == provider.Existing:
		return nil
	case there != nil && !there.BelongsTo(c):
		return s.h.wrapError("", op, provider.ErrForeign, `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"`)
	case there == nil || !there.hasSettings(want):
		if there != nil {
			users, err := there.listUsers()
			if err == nil && len(users) > 0 {
				err = s.h.wrapError("", op, fmt.Errorf("it has other settings, and cannot be changed, because these machines use it: %s", strings.Join(users, ", ")), "destroy the machines first, or leave the network as it was")
			}
			if err == nil {
				err = there.remove()
			}
			if err != nil {
				return err
			}
		}
		return s.createNetwork(c, want, reservations)
	}
	return there.prepare(reservations)
}

// prepare starts a network of the cluster if it is off, and updates the reservations.
func (n *network) prepare(reservations []provider.Reservation) error {
	if !n.active {
		if err := n.change("start the network", n.n.Create); err != nil {
			return err
		}
	}
	if err := n.n.SetAutostart(true); err != nil {
		return err
	}
	return n.updateReservations(reservations)
}

func (n *network) hasSettings(want provider.Network) bool {
	return n.Mode == want.Mode && n.Domain == want.Domain && len(n.CIDRs) == 1 && n.CIDRs[0] == want.CIDR.Masked()
}

func (s *session) createNetwork(c provider.Cluster, want provider.Network, reservations []provider.Reservation) error {
	if s.host.test {
		reservations = nil
	}
	text, err := networkXML(c, want, reservations)
	if err != nil {
		return err
	}
	if err := s.beforeChange("define the network"); err != nil {
		return err
	}
	n, err := s.conn.NetworkDefineXML(text)
	if err != nil {
		return err
	}
	s.freeAtEnd(n)
	return s.change("start the network", func() error { return inOrder(n.Create, func() error { return n.SetAutostart(true) }) })
}

// updateReservations removes reservations that want does not contain, and adds missing reservations. It keeps
// reservations without a name, because a user has added them.
func (n *network) updateReservations(want []provider.Reservation) error {
	if n.host.test {
		return nil
	}
	update := func(command libvirt.NetworkUpdateCommand, r provider.Reservation) error {
		text, err := executeTemplate("reservation", r)
		if err != nil {
			return err
		}
		if err := n.beforeChange("change the reservation of " + r.Node); err != nil {
			return err
		}
		flags := libvirt.NETWORK_UPDATE_AFFECT_CONFIG
		if active, err := n.n.IsActive(); err == nil && active {
			flags |= libvirt.NETWORK_UPDATE_AFFECT_LIVE
		}
		return n.n.Update(command, libvirt.NETWORK_SECTION_IP_DHCP_HOST, -1, text, flags)
	}
	for _, r := range n.Reservations {
		if r.Node == "" || slices.Contains(want, r) {
			continue
		}
		if err := update(libvirt.NETWORK_UPDATE_COMMAND_DELETE, r); err != nil {
			return err
		}
	}
	for _, r := range want {
		if slices.Contains(n.Reservations, r) {
			continue
		}
		if err := update(libvirt.NETWORK_UPDATE_COMMAND_ADD_LAST, r); err != nil {
			return n.h.wrapError(r.Node, fmt.Sprintf("reserve %s", r.Address), err, "")
		}
	}
	return nil
}

func (n *network) remove() error {
	if err := n.beforeChange("remove the network"); err != nil {
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

func (n *network) listUsers() ([]string, error) {
	domains, err := n.listDomains()
	if err != nil {
		return nil, err
	}
	var users []string
	for _, d := range domains {
		if slices.Contains(d.Networks, n.Name) {
			users = append(users, "machine "+d.Name)
		}
	}
	return users, nil
}
