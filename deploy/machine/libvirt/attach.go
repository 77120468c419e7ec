package libvirt

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// isDetached reports whether the network of a running domain was stopped or removed after the domain had
// been connected. When a network stops, libvirt removes the network's bridge and ports; when the network
// starts again, the new bridge has no interfaces. libvirt does not remove a bridge that it did not create.
func isDetached(d *domain, nets []*network) (bool, error) {
	if d.Link == nil {
		return false, nil
	}
	i := slices.IndexFunc(nets, func(n *network) bool { return n.Name == d.Link.Network })
	if i < 0 {
		return true, nil
	}
	n := nets[i]
	if !n.OwnsBridge() || !n.active {
		return n.OwnsBridge(), nil
	}
	if err := n.readPorts(); err != nil || !n.portsKnown {
		return false, err
	}
	text, err := d.d.GetXMLDesc(0)
	if err != nil {
		return false, err
	}
	now, err := domainxml.ParseDomain(text)
	if err != nil {
		return false, err
	}
	if now.Link == nil || now.Link.Network != d.Link.Network {
		return true, nil // a run was interrupted between the two steps of reconnectDomain
	}
	return !slices.ContainsFunc(n.ports, func(p domainxml.Port) bool { return p.UUID == now.Link.Port }), nil
}

// readPorts reads the ports of an active network at the first call; later calls do nothing.
func (n *network) readPorts() error {
	if n.portsRead {
		return nil
	}
	all, err := n.n.ListAllPorts(0)
	if isUnsupported(err) {
		n.portsRead = true
		return nil
	}
	if err != nil {
		return err
	}
	for i := range all {
		text, err := all[i].GetXMLDesc(0)
		_ = all[i].Free()
		if err != nil {
			continue // the port was removed during the call
		}
		p, err := domainxml.ParsePort(text)
		if err != nil {
			return err
		}
		n.ports = append(n.ports, p)
	}
	n.portsRead, n.portsKnown = true, true
	return nil
}

// reconnectDomain reconnects a running domain that is detached from its network. It only shuts a container down, because
// libvirt cannot change a container's interface. The caller then starts the container.
func (s *session) reconnectDomain(d *domain) error {
	state, err := stateOf(d.d)
	if err != nil || state != provider.Running && state != provider.Paused {
		return err
	}
	nets, err := s.listNetworks()
	if err != nil {
		return err
	}
	for _, n := range nets {
		defer n.free()
	}
	lost, err := isDetached(d, nets)
	if err != nil || !lost {
		return err
	}
	if s.host.kind == provider.Container {
		return s.shutDownDomain(d.d, s.h.shutdownTimeout)
	}
	i := slices.IndexFunc(nets, func(n *network) bool { return n.Name == d.Link.Network })
	if i < 0 || !nets[i].active {
		return fmt.Errorf("network %s is not active", d.Link.Network)
	}
	text, err := d.d.GetXMLDesc(libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		return err
	}
	steps, err := domainxml.ReconnectSteps(text, d.Link.MAC, d.Link.Network, nets[i].Bridge)
	if err != nil {
		return err
	}
	for _, one := range steps {
		if err := s.beforeChange("connect the interface " + d.Link.MAC); err != nil {
			return err
		}
		if err := d.d.UpdateDeviceFlags(one, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
			return err
		}
	}
	return nil
}
