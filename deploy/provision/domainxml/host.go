package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// HostUUID reads libvirt's description of a host; empty if it does not say.
func HostUUID(text string) (string, error) {
	var c libvirtxml.Caps
	if err := c.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read libvirt's description of the host: %w", err)
	}
	return c.Host.UUID, nil
}
