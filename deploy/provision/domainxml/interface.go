package domainxml

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Reconnections are two descriptions of a running domain's interface, with which it is to be updated one
// after the other: with the network's bridge by name, then with the network. libvirt does nothing for
// an interface that is described as it is, and so would leave it without a bridge.
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
	return nil, fmt.Errorf("it runs without an interface with the MAC %s", mac)
}

// Port says who is on a network of libvirt.
type Port struct {
	UUID      string
	Owner     string // name of a domain
	OwnerUUID string
	MAC       string
}

// ParsePort reads libvirt's description of a network's port.
func ParsePort(text string) (Port, error) {
	var n libvirtxml.NetworkPort
	if err := n.Unmarshal(text); err != nil {
		return Port{}, fmt.Errorf("read libvirt's description of a network's port: %w", err)
	}
	p := Port{UUID: n.UUID}
	if n.Owner != nil {
		p.Owner, p.OwnerUUID = n.Owner.Name, n.Owner.UUID
	}
	if n.MAC != nil {
		p.MAC = n.MAC.Address
	}
	return p, nil
}
