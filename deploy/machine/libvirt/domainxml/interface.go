package domainxml

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// ReconnectSteps returns two XML descriptions of a running domain's interface. The first names the network's bridge, the second names
// the network. The caller updates the interface with the first and then with the second. An update with only the second would have no
// effect: the interface already names the network, and libvirt ignores an update that changes nothing.
func ReconnectSteps(running, mac, network, bridge string) ([]string, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(running); err != nil {
		return nil, fmt.Errorf("read libvirt's description of a domain: %w", err)
	}
	for _, i := range d.Devices.Interfaces {
		if i.MAC == nil || !strings.EqualFold(i.MAC.Address, mac) {
			continue
		}
		var all []string
		for _, source := range []libvirtxml.DomainInterfaceSource{
			{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: bridge}},
			{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: network}},
		} {
			i.Source = &source
			text, err := i.Marshal()
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
		return all, nil
	}
	return nil, fmt.Errorf("the running domain has no interface with the MAC %s", mac)
}

// Port is a connection of a domain to a libvirt network.
type Port struct {
	UUID      string
	Owner     string // name of the domain
	OwnerUUID string
}

// ParsePort parses libvirt's description of a network's port.
func ParsePort(text string) (Port, error) {
	var n libvirtxml.NetworkPort
	if err := n.Unmarshal(text); err != nil {
		return Port{}, fmt.Errorf("read libvirt's description of a network's port: %w", err)
	}
	p := Port{UUID: n.UUID}
	if n.Owner != nil {
		p.Owner, p.OwnerUUID = n.Owner.Name, n.Owner.UUID
	}
	return p, nil
}
