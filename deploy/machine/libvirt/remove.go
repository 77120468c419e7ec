package libvirt

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Remove removes the domain first, then the machine's volumes. After an interruption, the next
// survey finds the remaining volumes by their names.
func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	return h.execute(ctx, node, "remove the machine", "", func(s *session) error {
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

// Clean implements [provider.Provider]. It also removes the pool if it is empty and nixbench created it.
func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster, last bool) error {
	return h.execute(ctx, "", "remove unused networks and images", "", func(s *session) error {
		var inUse error
		if last {
			var err error
			if inUse, err = s.cleanNetworks(c); err != nil {
				return err
			}
		}
		return errors.Join(inUse, s.cleanPool(c, last))
	})
}

func (s *session) cleanNetworks(c provider.Cluster) (inUse, err error) {
	// All networks of the cluster are examined, because the network may have another name in the hive now.
	all, err := s.listNetworks()
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if !n.BelongsTo(c) {
			continue
		}
		users, err := n.listUsers()
		if len(users) > 0 {
			inUse = errors.Join(inUse, provider.NewInUseError(s.h.name, "network "+n.Name, "used by "+strings.Join(users, ", "), "remove that machine, or disconnect it from the network (virsh edit)"))
			continue
		}
		if err == nil {
			err = n.remove()
		}
		if err != nil {
			return inUse, s.h.wrapError("", "remove the network "+n.Name, err, "")
		}
	}
	return inUse, nil
}

func (s *session) cleanPool(c provider.Cluster, last bool) error {
	p, err := s.findPool()
	if err != nil || p == nil {
		return err
	}
	if err := p.refresh(); err != nil {
		return err
	}
	return errors.Join(p.cleanImages(c, last), p.removeIfEmpty())
}

// cleanImages removes the images that no machine of this cluster, no volume and no other cluster needs. If last is set, an image of this
// cluster that it keeps because a volume is based on it is an error.
func (p *pool) cleanImages(c provider.Cluster, last bool) error {
	volumes, err := p.p.ListAllStorageVolumes(0)
	if err != nil {
		return err
	}
	images := map[string][]string{} // hash of an image → its volumes, such as disk and ok
	basedOn := map[string]string{}  // name of a backing file → a volume that is based on the file
	for i := range volumes {
		p.freeAtEnd(&volumes[i])
		name, err := volumes[i].GetName()
		if m := imageVolumePattern.FindStringSubmatch(name); err == nil && m != nil {
			images[m[1]] = append(images[m[1]], m[2])
		} else if err == nil {
			about := libvirtxml.StorageVolume{BackingStore: &libvirtxml.StorageVolumeBackingStore{}}
			if text, err := volumes[i].GetXMLDesc(0); err == nil && about.Unmarshal(text) == nil { // not if it was removed meanwhile
				basedOn[path.Base(about.BackingStore.Path)] = name
			}
		}
	}
	domains, err := p.listDomains()
	if err != nil {
		return err
	}
	var inUse error
	for _, hash := range slices.Sorted(maps.Keys(images)) {
		if slices.ContainsFunc(domains, func(d *domain) bool { return d.IsMachineOf(c) && d.Mark.Image == hash }) {
			continue
		}
		have, word, user := images[hash], "for-"+shortID(c), basedOn[imageVolumeName(hash, "disk")]
		needed := slices.ContainsFunc(have, func(what string) bool { return what != word && strings.HasPrefix(what, "for-") })
		if user != "" && !needed {
			if last && slices.Contains(have, word) { // keep the marker, so that the next Clean finds the image again
				inUse = errors.Join(inUse, provider.NewInUseError(p.h.name, "image "+hash, "volume "+user+" was made from it", "remove that volume"))
			}
			continue
		}
		unused := []string{word}
		if !needed { // remove the volume ok first: an image without this volume is treated as incomplete
			unused = append([]string{"ok"}, have...)
		}
		for _, what := range unused {
			if err := p.removeVolume(imageVolumeName(hash, what)); err != nil {
				return err
			}
		}
	}
	return inUse
}

// removeIfEmpty removes the pool if it is empty and nixbench created it. The pool's folder remains: it may be older than the pool.
func (p *pool) removeIfEmpty() error {
	names, err := p.p.ListStorageVolumes()
	if err != nil || len(names) > 0 || !p.ours {
		return err
	}
	return p.change("remove the pool", func() error { return inOrder(p.p.Destroy, p.p.Undefine) })
}
