package libvirt

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// host describes the host and libvirt's driver. examineHost reads it once per connection.
type host struct {
	Type string // type of the domains: kvm, qemu, lxc, test
	Arch string // x86_64; empty: libvirt's choice
	kind provider.Kind
	id   string // identifies the host; all libvirt drivers on the same host have the same id
	test bool   // whether the driver is libvirt's test driver; volumes of the test driver have no content
}

func (h *Hypervisor) examineHost(conn *libvirt.Connect) (host, error) {
	driver, err := conn.GetType()
	if err != nil {
		return host{}, err
	}
	node, err := conn.GetNodeInfo()
	if err != nil {
		return host{}, err
	}
	about := host{kind: provider.VM, Arch: node.Model}
	if about.id, err = readHostID(conn); err != nil {
		return host{}, err
	}
	switch strings.ToLower(driver) {
	case "lxc":
		about.kind, about.Type = provider.Container, "lxc"
	case "qemu":
		about.Type = "qemu"
		// Ask libvirt, which asks QEMU, whether KVM works. The existence of /dev/kvm alone does not prove that KVM works.
		if _, err := conn.GetDomainCapabilities("", node.Model, "", "kvm", 0); err == nil {
			about.Type = "kvm"
		} else {
			h.send.Send(event.Event{Kind: event.Message, Level: "warning",
				Text: fmt.Sprintf("hypervisor %s has no KVM: its machines are emulated, which is many times slower", h.name)})
		}
	case "test":
		about.test, about.Type, about.Arch = true, "test", ""
	default:
		return host{}, fmt.Errorf("nixbench does not support libvirt's driver %s: use qemu or lxc", driver)
	}
	return about, nil
}

// readHostID returns the name and the firmware's UUID of the host. Both are needed, because two hosts may have the same
// name or the same UUID.
func readHostID(conn *libvirt.Connect) (string, error) {
	name, err := conn.GetHostname()
	if err != nil {
		return "", err
	}
	text, err := conn.GetCapabilities()
	if err != nil {
		return "", err
	}
	var c libvirtxml.Caps
	if err := c.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read libvirt's description of the host: %w", err)
	}
	return name + " " + c.Host.UUID, nil
}

// readFreeMemory returns the host's free memory in bytes, including buffers and caches, which the kernel can reclaim.
func readFreeMemory(conn *libvirt.Connect) uint64 {
	if m, err := conn.GetMemoryStats(libvirt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil && m.FreeSet {
		return (m.Free + m.Buffers + m.Cached) << 10
	}
	node, err := conn.GetNodeInfo()
	if err != nil {
		return 0
	}
	return node.Memory << 10
}
