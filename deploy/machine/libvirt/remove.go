package libvirt

import (
	"context"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Remove removes the domain first, then the machine's volumes, then the reservations. After an interruption, the next
// survey finds the remaining volumes by their names.
func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	err := h.runOperation(ctx, func(s *session) error {
		if err := s.removeDomain(c, node); err != nil {
			return err
		}
		if err := s.removeMachineVolumes(c, node); err != nil {
			return err
		}
		return s.removeReservations(c, node)
	})
	return h.wrapError(node, "remove the machine", err, "")
}

func (s *session) removeDomain(c provider.Cluster, node string) error {
	d, err := s.findMachine(c, node)
	if err != nil || d == nil {
		return err
	}
	defer d.free()
	if !d.isMachineOfNode(c, node) {
		return nil
	}
	if err := s.destroyDomain(d.d); err != nil {
		return err
	}
	if err := s.beforeChange("undefine the domain"); err != nil {
		return err
	}
	if s.host.xml.Type == "lxc" || s.host.test {
		err = d.d.Undefine()
	} else {
		err = d.d.UndefineFlags(libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
			libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM)
	}
	if isNotFound(err) {
		return nil
	}
	return err
}

func (s *session) removeMachineVolumes(c provider.Cluster, node string) error {
	p, err := s.findPool()
	if err != nil || p == nil {
		return err
	}
	defer p.free()
	if err := p.refresh(); err != nil { // before a refresh, libvirt does not list the console log
		return err
	}
	names, err := p.listVolumeNames()
	if err != nil {
		return err
	}
	if err := p.removeVolume(s.rootVolumeName(c, node)); err != nil {
		return err
	}
	folder := machineVolumeName(c, node, "seed")
	for _, name := range names {
		m := machineVolumePattern.FindStringSubmatch(name)
		if m == nil || m[1] != shortID(c) || m[2] != node || name == folder || !s.host.usesVolumeSuffix(m[3]) {
			continue
		}
		if err := p.removeVolume(name); err != nil {
			return err
		}
	}
	if !s.host.usesVolumeSuffix("seed") {
		return nil
	}
	return p.removeFolder(folder)
}

// BeginClusterRemoval implements [provider.ClusterRemover].
func (h *Hypervisor) BeginClusterRemoval(c provider.Cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removedClusters[c.ID] = true
}

func (h *Hypervisor) isRemovingCluster(c provider.Cluster) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removedClusters[c.ID]
}

// removeReservations removes the node's reservations in all networks of the cluster. It does nothing while the whole
// cluster is being removed: the networks are removed too, and each change is slow, because libvirt rebuilds all
// firewall rules of the network.
func (s *session) removeReservations(c provider.Cluster, node string) error {
	if s.host.test || s.h.isRemovingCluster(c) {
		return nil
	}
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	all, err := s.listNetworks()
	if err != nil {
		return err
	}
	for _, n := range all {
		defer n.free()
		if !n.BelongsTo(c) {
			continue
		}
		for _, r := range n.Reservations {
			if r.Node != node {
				continue
			}
			if err := s.updateReservation(n.n, libvirt.NETWORK_UPDATE_COMMAND_DELETE, r); err != nil && !strings.Contains(err.Error(), "couldn't locate") {
				return err
			}
		}
	}
	return nil
}
