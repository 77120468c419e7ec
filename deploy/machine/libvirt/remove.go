package libvirt

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Remove removes the domain first, then the machine's volumes. After an interruption, the next
// survey finds the remaining volumes by their names.
func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	err := h.runOperation(ctx, func(s *session) error {
		d, err := s.findMachine(c, node)
		if err != nil {
			return err
		}
		if d != nil && d.isMachineOfNode(c, node) {
			if err := inOrder(d.destroy, d.undefine); err != nil {
				return err
			}
		}
		p, err := s.findPool()
		if err != nil || p == nil {
			return err
		}
		return p.removeMachineVolumes(c, node)
	})
	return h.wrapError(node, "remove the machine", err, "")
}

func (p *pool) removeMachineVolumes(c provider.Cluster, node string) error {
	if err := p.refresh(); err != nil { // QEMU writes the console log into the pool's folder, and libvirt lists it only after a refresh
		return err
	}
	names, err := p.p.ListStorageVolumes()
	if err != nil {
		return err
	}
	if err := p.removeVolume(p.host.rootVolumeName(c, node)); err != nil {
		return err
	}
	for _, name := range names {
		m := machineVolumePattern.FindStringSubmatch(name)
		if m == nil || m[1] != shortID(c) || m[2] != node || !p.host.usesVolumeSuffix(m[3]) {
			continue
		}
		if err := p.removeVolume(name); err != nil {
			return err
		}
	}
	return nil
}

// Clean removes the cluster's networks that no machine uses, the images that no volume is based on and no
// cluster needs, and the pool if it is empty and nixbench created it. It returns the networks and images that it
// keeps because they are in use.
func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster, nodes []string) ([]provider.Remaining, error) {
	return query(ctx, h, "", "remove unused networks and images", "", func(s *session) ([]provider.Remaining, error) {
		networks, err := s.cleanNetworks(c, nodes)
		if err != nil {
			return nil, err
		}
		images, err := s.cleanPool(c)
		return append(networks, images...), err
	})
}

// cleanNetworks removes the networks of the cluster that no machine uses, and returns the networks that machines use. While a node of
// the cluster has a machine, it keeps all networks: a machine of another libvirt driver may use a network without being visible here.
func (s *session) cleanNetworks(c provider.Cluster, nodes []string) ([]provider.Remaining, error) {
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	// All networks of the cluster are examined, because the network may have another name in the hive now.
	all, err := s.listNetworks()
	if err != nil {
		return nil, err
	}
	var left []provider.Remaining
	for _, n := range all {
		if !n.BelongsTo(c) {
			continue
		}
		users, err := n.listUsers()
		if err == nil && len(users) == 0 && len(nodes) == 0 {
			err = n.remove()
		}
		if err != nil {
			return nil, s.h.wrapError("", "remove the network "+n.Name, err, "")
		}
		if len(users) > 0 {
			left = append(left, provider.Remaining{
				What: "network " + n.Name, Why: "used by " + strings.Join(users, ", "),
				Fix: "remove that machine, or disconnect it from the network (virsh edit)",
			})
		}
	}
	return left, nil
}

func (s *session) cleanPool(c provider.Cluster) ([]provider.Remaining, error) {
	p, err := s.findPool()
	if err != nil || p == nil {
		return nil, err
	}
	if err := p.refresh(); err != nil {
		return nil, err
	}
	left, err := p.cleanImages(c)
	if err != nil {
		return nil, err
	}
	return left, p.removeIfEmpty()
}

// cleanImages removes the images that no machine of this cluster, no volume and no other cluster needs. It returns the
// images of this cluster that it keeps because a volume is based on them.
func (p *pool) cleanImages(c provider.Cluster) ([]provider.Remaining, error) {
	volumes, err := p.p.ListAllStorageVolumes(0)
	if err != nil {
		return nil, err
	}
	images := map[string][]string{} // hash of an image → its volumes, such as disk and ok
	basedOn := map[string]string{}  // name of a backing file → a volume that is based on the file
	for i := range volumes {
		p.freeAtEnd(&volumes[i])
		name, err := volumes[i].GetName()
		if m := imageVolumePattern.FindStringSubmatch(name); err == nil && m != nil {
			images[m[1]] = append(images[m[1]], m[2])
		} else if err == nil {
			text, _ := volumes[i].GetXMLDesc(0)
			file, _ := domainxml.BackingFile(text) // empty if libvirt cannot read the volume
			basedOn[path.Base(file)] = name
		}
	}
	domains, err := p.listDomains()
	if err != nil {
		return nil, err
	}
	var left []provider.Remaining
	for _, hash := range slices.Sorted(maps.Keys(images)) {
		if slices.ContainsFunc(domains, func(d *domain) bool { return d.IsMachineOf(c) && d.Mark.Image == hash }) {
			continue
		}
		have, word, user := images[hash], "for-"+shortID(c), basedOn[imageVolumeName(hash, "disk")]
		marked := slices.Contains(have, word)
		needed := slices.ContainsFunc(have, func(what string) bool { return what != word && strings.HasPrefix(what, "for-") })
		if user != "" && !needed {
			if marked { // keep the volume that marks the image as used by the cluster, so that the next Clean finds the image again
				left = append(left, provider.Remaining{What: "image " + hash, Why: "volume " + user + " was made from it", Fix: "remove that volume"})
			}
			continue
		}
		var unused []string
		if marked {
			unused = append(unused, word)
		}
		if !needed { // remove the volume ok first: an image without this volume is treated as incomplete
			unused = append(unused, "ok", "disk", "initrd", "kernel")
		}
		for _, what := range unused {
			if err := p.removeVolume(imageVolumeName(hash, what)); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// removeIfEmpty removes the pool if it is empty and nixbench created it. The pool's folder remains: it may be older than the pool.
func (p *pool) removeIfEmpty() error {
	p.h.storage.Lock()
	defer p.h.storage.Unlock()
	names, err := p.p.ListStorageVolumes()
	if err != nil || len(names) > 0 || !p.ours {
		return err
	}
	return p.change("remove the pool", func() error { return inOrder(p.p.Destroy, p.p.Undefine) })
}
