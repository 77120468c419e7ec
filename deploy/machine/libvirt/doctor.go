package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Examine checks libvirt, KVM or the isolation of containers, the pool, the memory and the network of the hypervisor. It changes nothing.
func (h *Hypervisor) Examine(ctx context.Context, net provider.Network) []provider.Finding {
	var seen, all []provider.Finding
	err := h.runOperation(ctx, func(s *session) error {
		e := examination{session: s, net: net}
		seen = []provider.Finding{e.examineLibvirt(), e.examineIsolation(), e.examinePool(), e.examineMemory(), e.examineNetwork()}
		return ctx.Err()
	})
	if err == nil {
		all = seen
	} else { // seen is not read, because the abandoned operation may still write it
		f := provider.Finding{What: "libvirt", State: provider.FindingError, Text: err.Error()}
		var e *provider.Error
		if errors.As(err, &e) {
			f.Text, f.Fix = fmt.Sprintf("%s: %v", e.Op, e.Err), e.Fix
		}
		all = []provider.Finding{f}
	}
	for i := range all {
		all[i].Where = h.name
	}
	return all
}

// examination is the operation that examines a hypervisor.
type examination struct {
	*session
	net provider.Network
}

func newFinding(what, state, fix, format string, args ...any) provider.Finding {
	return provider.Finding{What: what, State: state, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// newErrorFinding converts an error to a finding.
func (s examination) newErrorFinding(what string, err error) provider.Finding {
	var e *provider.Error
	errors.As(s.h.wrapError("", what, err, ""), &e)
	return newFinding(what, "error", e.Fix, "%v", e.Err)
}

func (s examination) examineLibvirt() provider.Finding {
	v, err := s.conn.GetLibVersion()
	if err != nil {
		return s.newErrorFinding("libvirt", err)
	}
	text := fmt.Sprintf("version %d.%d.%d, %s", v/1000000, v/1000%1000, v%1000, s.h.o.URI)
	if s.host.kind == provider.VM && !s.host.test {
		if _, err := s.conn.GetDomainCapabilities("", s.host.xml.Arch, "", s.host.xml.Type, 0); err != nil {
			return newFinding("libvirt", "error", "install QEMU on the hypervisor (packages qemu-system-x86 and qemu-utils)", "%s; it finds no QEMU", text)
		}
	}
	if v < 7000000 {
		return newFinding("libvirt", "warning", "use libvirt 7.0 or later", "%s is older than the versions that nixbench is tested with", text)
	}
	return newFinding("libvirt", "ok", "", "%s", text)
}

// examineIsolation checks what separates machines from the hypervisor.
func (s examination) examineIsolation() provider.Finding {
	switch {
	case s.host.kind == provider.Container:
		return newFinding("isolation", "warning", "use virtual machines (qemu:///system) for nodes whose users or workloads you do not trust",
			"containers have no user namespace: root in one of them is root on the hypervisor")
	case s.host.xml.Type == "kvm":
		return newFinding("KVM", "ok", "", "machines run with KVM")
	}
	return newFinding("KVM", "warning", "enable virtualization in the firmware, load the module kvm_intel or kvm_amd, and allow libvirt's QEMU to open /dev/kvm",
		"machines are emulated, many times slower")
}

func (s examination) examinePool() provider.Finding {
	const what = "storage pool"
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		// libvirt allows only one pool per folder, so another pool in the folder is an error.
		if other, err := s.conn.LookupStoragePoolByTargetPath(s.h.o.PoolPath); err == nil {
			name, _ := other.GetName()
			s.freeAtEnd(other)
			return newFinding(what, "error", "name that pool, or another folder, in cluster.hypervisors",
				"%s would be created in %s, which already belongs to the pool %s", s.h.o.Pool, s.h.o.PoolPath, name)
		}
		return newFinding(what, "ok", "", "%s will be created in %s", s.h.o.Pool, s.h.o.PoolPath)
	}
	if err != nil {
		return s.newErrorFinding(what, err)
	}
	found, err := s.describePool(p)
	if err != nil {
		return s.newErrorFinding(what, err)
	}
	if active, err := p.IsActive(); err != nil || !active {
		return newFinding(what, "warning", "nixbench starts it when it is needed", "%s in %s is not active", s.h.o.Pool, found.path)
	}
	left, err := found.readFreeBytes()
	switch {
	case err != nil:
		return s.newErrorFinding(what, err)
	case left < 2<<30 && !s.host.test:
		return newFinding(what, "warning", "make room", "%s in %s has %s left", s.h.o.Pool, found.path, provider.SizeText(left))
	}
	return newFinding(what, "ok", "", "%s in %s has %s left", s.h.o.Pool, found.path, provider.SizeText(left))
}

func (s examination) examineMemory() provider.Finding {
	free := readFreeMemory(s.conn)
	if free < 1<<30 && !s.host.test {
		return newFinding("memory", "warning", "stop other programs, or give the roles less memory", "%s are left", provider.SizeText(free))
	}
	return newFinding("memory", "ok", "", "%s are left", provider.SizeText(free))
}

func (s examination) examineNetwork() provider.Finding {
	net := s.net
	const what = "network"
	if net.Mode == provider.Bridge {
		return newFinding(what, "ok", "", "machines use the bridge %s; whether it exists is checked when they start", net.Bridge)
	}
	n, err := s.findNetwork(net.Name)
	if isUnsupported(err) {
		return newFinding(what, "error", "install libvirt's network driver there (package libvirt-daemon-driver-network)", "libvirt has no network driver")
	}
	if err != nil {
		return s.newErrorFinding(what, err)
	}
	switch {
	case n == nil && net.Mode == provider.Existing:
		return newFinding(what, "error", `define it, or set cluster.network.mode to "nat"`, "there is no network %s", net.Name)
	case n == nil:
		return newFinding(what, "ok", "", "%s will be created with %s", net.Name, net.CIDR)
	case net.Mode == provider.Existing && !n.active:
		return newFinding(what, "error", "virsh net-start "+net.Name, "%s is not active", net.Name)
	case net.Mode == provider.Existing:
		return newFinding(what, "ok", "", "%s %v is used as it is", net.Name, n.CIDRs)
	case n.Mark == nil:
		return newFinding(what, "error", `choose another cluster.network.name, or set cluster.network.mode to "existing"`,
			"%s exists, and nixbench did not create it", net.Name)
	}
	return newFinding(what, "ok", "", "%s %v, created by nixbench for cluster %s", net.Name, n.CIDRs, n.Mark.Cluster)
}
