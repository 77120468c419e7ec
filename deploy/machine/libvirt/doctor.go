package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func (h *Hypervisor) Examine(ctx context.Context) []provider.Finding {
	all, err := query(ctx, h, "", "examine libvirt", "", func(s *session) ([]provider.Finding, error) {
		return []provider.Finding{s.examineLibvirt(), examineIsolation(s.host), s.examinePool()}, nil
	})
	if err != nil {
		all = []provider.Finding{h.newErrorFinding("libvirt", err)}
	}
	for i := range all {
		all[i].Where = h.name
	}
	return all
}

func newFinding(what, state, fix, format string, args ...any) provider.Finding {
	return provider.Finding{What: what, State: state, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func (h *Hypervisor) newErrorFinding(what string, err error) provider.Finding {
	var e *provider.Error
	errors.As(h.wrapError("", what, err, ""), &e)
	return newFinding(what, provider.FindingError, e.Fix, "%s: %v", e.Op, e.Err)
}

func (s *session) examineLibvirt() provider.Finding {
	v, err := s.conn.GetLibVersion()
	if err != nil {
		return s.h.newErrorFinding("libvirt", err)
	}
	text := fmt.Sprintf("version %d.%d.%d, %s", v/1000000, v/1000%1000, v%1000, s.h.o.URI)
	if s.host.kind == provider.VM && !s.host.test {
		if _, err := s.conn.GetDomainCapabilities("", s.host.Arch, "", s.host.Type, 0); err != nil {
			return newFinding("libvirt", "error", "install QEMU on the hypervisor (packages qemu-system-x86 and qemu-utils)", "%s; it finds no QEMU", text)
		}
	}
	if v < 7000000 {
		return newFinding("libvirt", "warning", "use libvirt 7.0 or later", "%s is older than the versions that nixbench is tested with", text)
	}
	return newFinding("libvirt", "ok", "", "%s", text)
}

// examineIsolation checks what separates machines from the hypervisor.
func examineIsolation(h host) provider.Finding {
	switch {
	case h.kind == provider.Container:
		return newFinding("isolation", "warning", "use virtual machines (qemu:///system) for nodes whose users or workloads you do not trust",
			"containers have no user namespace: root in one of them is root on the hypervisor")
	case h.Type == "kvm":
		return newFinding("KVM", "ok", "", "machines run with KVM")
	}
	return newFinding("KVM", "warning", "enable virtualization in the firmware, load the module kvm_intel or kvm_amd, and allow libvirt's QEMU to open /dev/kvm",
		"machines are emulated, many times slower")
}

func (s *session) examinePool() provider.Finding {
	const what = "storage pool"
	p, err := s.findPool()
	if err != nil {
		return s.h.newErrorFinding(what, err)
	}
	if p == nil {
		return newFinding(what, "ok", "", "%s in %s will be created or started", s.h.o.Pool, s.h.o.PoolPath)
	}
	info, err := p.p.GetInfo()
	if err != nil {
		return s.h.newErrorFinding(what, err)
	}
	f := newFinding(what, "ok", "", "%s in %s has %s left", s.h.o.Pool, p.path, event.Size(info.Available))
	if info.Available < 2<<30 && !s.host.test {
		f.State, f.Fix = "warning", "make room"
	}
	return f
}
