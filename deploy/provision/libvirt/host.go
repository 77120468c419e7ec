package libvirt

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// host describes a hypervisor; it is read once per connection.
type host struct {
	kind provision.Kind
	xml  domainxml.Host
	cpus int
	id   string // identifies the host; the same for all libvirt drivers of the host
	test bool   // libvirt's test driver, whose volumes have no content
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
	about := host{kind: provision.VM, xml: domainxml.Host{Arch: node.Model}, cpus: int(node.Cpus)}
	if about.id, err = hostID(conn); err != nil {
		return host{}, err
	}
	switch strings.ToLower(driver) {
	case "lxc":
		about.kind, about.xml.Type = provision.Container, "lxc"
	case "qemu":
		about.xml.Type = "qemu"
		// libvirt asks QEMU, which asks the kernel. The existence of /dev/kvm alone does not prove that KVM
		// works.
		if _, err := conn.GetDomainCapabilities("", node.Model, "", "kvm", 0); err == nil {
			about.xml.Type = "kvm"
		} else {
			h.o.Send.Send(event.Event{Kind: event.Message, Level: "warning",
				Text: fmt.Sprintf("hypervisor %s has no KVM: its machines are emulated, which is many times slower", h.name)})
		}
	case "test":
		about.test, about.xml = true, domainxml.Host{Type: "test"}
	default:
		return host{}, fmt.Errorf("nixbench does not support libvirt's driver %s: use qemu or lxc", driver)
	}
	return about, nil
}

// hostID returns the host name and the UUID of its firmware: neither alone is always unique.
func hostID(conn *libvirt.Connect) (string, error) {
	name, err := conn.GetHostname()
	if err != nil {
		return "", err
	}
	text, err := conn.GetCapabilities()
	if err != nil {
		return "", err
	}
	id, err := domainxml.HostUUID(text)
	return name + " " + id, err
}

// freeMemory returns the free memory in bytes, with the buffers and caches that the kernel can reclaim.
func freeMemory(conn *libvirt.Connect) uint64 {
	if m, err := conn.GetMemoryStats(libvirt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil && m.FreeSet {
		return (m.Free + m.Buffers + m.Cached) << 10
	}
	if free, err := conn.GetFreeMemory(); err == nil {
		return free
	}
	node, err := conn.GetNodeInfo()
	if err != nil {
		return 0
	}
	return node.Memory << 10
}
