package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// States implements [provider.Observer]. It makes two calls of libvirt for each node, and reads no XML.
func (h *Hypervisor) States(ctx context.Context, c provider.Cluster, nodes []string) (map[string]provider.State, error) {
	states := map[string]provider.State{}
	err := h.observe(ctx, c, nodes, func(node string, d *libvirt.Domain) error {
		state, err := stateOf(d)
		if err == nil {
			states[node] = state
		}
		return err
	})
	return states, err
}

// Emulated implements [provider.Observer].
func (h *Hypervisor) Emulated(ctx context.Context, c provider.Cluster, nodes []string) ([]string, error) {
	var emulated []string
	err := h.observe(ctx, c, nodes, func(node string, d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		info, err := domainxml.ParseDomain(text)
		if err == nil && info.Type == "qemu" {
			emulated = append(emulated, node)
		}
		return err
	})
	return emulated, err
}

// observe calls read for the domain of each node's machine. It leaves out machines that do not exist.
func (h *Hypervisor) observe(ctx context.Context, c provider.Cluster, nodes []string, read func(node string, d *libvirt.Domain) error) error {
	err := h.runOperation(ctx, func(s *session) error {
		for _, node := range nodes {
			d, err := s.conn.LookupDomainByUUIDString(domainxml.DomainUUID(c, node))
			if err == nil {
				err = read(node, d)
				_ = d.Free()
			}
			if err != nil && !isNotFound(err) {
				return err
			}
		}
		return nil
	})
	return h.wrapError("", "observe the machines", err, "")
}
