package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// HostUUID returns the host's UUID from libvirt's capabilities; empty if the capabilities contain no UUID.
func HostUUID(text string) (string, error) {
	var c libvirtxml.Caps
	if err := c.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read libvirt's description of the host: %w", err)
	}
	return c.Host.UUID, nil
}
