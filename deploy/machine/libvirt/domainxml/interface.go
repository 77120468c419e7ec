package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

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
