package libvirt

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func (h *Hypervisor) Examine(ctx context.Context) []provider.Finding {
	all, err := query(ctx, h, "", "examine libvirt", "", func(s *session) ([]provider.Finding, error) {
		libvirt, err := s.examineLibvirt()
		if err != nil {
			return nil, err
		}
		pool, err := s.examinePool()
		return []provider.Finding{libvirt, examineIsolation(s.host), pool}, err
	})
	if err != nil {
		all = []provider.Finding{provider.NewErrorFinding("libvirt", err)}
	}
	for i := range all {
		all[i].Where = h.name
	}
	return all
}

func (s *session) examineLibvirt() (provider.Finding, error) {
	v, err := s.conn.GetLibVersion()
	if err != nil {
		return provider.Finding{}, err
	}
	f := provider.Finding{What: "libvirt", State: "ok", Text: fmt.Sprintf("version %d.%d.%d, %s", v/1000000, v/1000%1000, v%1000, s.h.o.URI)}
	if s.host.kind == provider.VM && !s.host.test {
		if _, err := s.conn.GetDomainCapabilities("", s.host.Arch, "", s.host.Type, 0); err != nil {
			f.State, f.Text, f.Fix = "error", f.Text+"; it finds no QEMU", "install QEMU on the hypervisor (packages qemu-system-x86 and qemu-utils)"
		}
	}
	return f, nil
}

// examineIsolation checks what separates machines from the hypervisor.
func examineIsolation(h host) provider.Finding {
	switch {
	case h.kind == provider.Container:
		return provider.Finding{What: "isolation", State: "warning", Text: "containers have no user namespace: root in one of them is root on the hypervisor",
			Fix: "use virtual machines (qemu:///system) for nodes whose users or workloads you do not trust"}
	case h.Type == "kvm":
		return provider.Finding{What: "KVM", State: "ok", Text: "machines run with KVM"}
	}
	return provider.Finding{What: "KVM", State: "warning", Text: "machines are emulated, many times slower",
		Fix: "enable virtualization in the firmware, load the module kvm_intel or kvm_amd, and allow libvirt's QEMU to open /dev/kvm"}
}

func (s *session) examinePool() (provider.Finding, error) {
	f := provider.Finding{What: "storage pool", State: "ok", Text: fmt.Sprintf("%s in %s will be created or started", s.h.o.Pool, s.h.o.PoolPath)}
	p, err := s.findPool()
	if err != nil || p == nil {
		return f, err
	}
	info, err := p.p.GetInfo()
	if err != nil {
		return f, err
	}
	f.Text = fmt.Sprintf("%s in %s has %s left", s.h.o.Pool, p.path, event.Size(info.Available))
	if info.Available < 2<<30 && !s.host.test {
		f.State, f.Fix = "warning", "make room"
	}
	return f, nil
}
