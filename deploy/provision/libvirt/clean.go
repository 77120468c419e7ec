package libvirt

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/provision"
)

// Clean removes the cluster's networks unless a machine is on them, the images that nothing
// stands on and no cluster needs, and the pool, if nixbench made it and nothing is in it.
func (h *Hypervisor) Clean(ctx context.Context, c provision.Cluster) error {
	return h.run(ctx, func(s *session) error {
		if err := s.cleanNetworks(c); err != nil {
			return h.fail("", "look at the networks", err, "")
		}
		return h.fail("", "remove images", s.cleanPool(c), "")
	})
}

func (s *session) cleanNetworks(c provision.Cluster) error {
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	// All that are ours: the hive may have called it something else before.
	all, err := s.networks()
	if err != nil {
		return err
	}
	for _, n := range all {
		defer n.free()
		if !n.ours(c) {
			continue
		}
		users, err := s.networkUsers(n)
		if err == nil && len(users) == 0 {
			err = s.removeNetwork(n)
		}
		if err != nil {
			return s.h.fail("", "remove the network "+n.Name, err, "")
		}
	}
	return nil
}

// networkUsers are those on a network, in words: domains that name it, running or not, and
// those of libvirt's other drivers, which only show as ports.
func (s *session) networkUsers(n *network) ([]string, error) {
	domains, err := s.domains()
	if err != nil {
		return nil, err
	}
	var users []string
	for _, d := range domains {
		defer d.free()
		if d.Network == n.Name {
			users = append(users, d.Name)
		}
	}
	if ports, err := n.n.ListAllPorts(0); err == nil {
		if len(ports) > 0 && len(users) == 0 {
			users = append(users, "one of another libvirt driver")
		}
		for i := range ports {
			_ = ports[i].Free()
		}
	}
	return users, nil
}

func (s *session) cleanPool(c provision.Cluster) error {
	p, err := s.findPool()
	if err != nil || p == nil {
		return err
	}
	defer p.free()
	if err := p.refresh(); err != nil {
		return err
	}
	if err := p.cleanImages(c); err != nil {
		return err
	}
	return p.removeIfEmpty()
}

func (p *pool) cleanImages(c provision.Cluster) error {
	volumes, err := p.p.ListAllStorageVolumes(0)
	if err != nil {
		return err
	}
	images := map[string][]string{} // what there is of each
	stands := map[string]bool{}     // files that volumes stand on
	for i := range volumes {
		name, err := volumes[i].GetName()
		if m := imageVolume.FindStringSubmatch(name); err == nil && m != nil {
			images[m[1]] = append(images[m[1]], m[2])
		} else if err == nil {
			stands[path.Base(below(&volumes[i]))] = true
		}
		_ = volumes[i].Free()
	}
	domains, err := p.domains()
	if err != nil {
		return err
	}
	ours, anybodys := map[string]bool{}, map[string]bool{}
	for _, d := range domains {
		defer d.free()
		if d.Mark != nil {
			anybodys[d.Mark.Image] = true
			ours[d.Mark.Image] = ours[d.Mark.Image] || d.Mark.ID == c.ID
		}
	}
	for hash, have := range images {
		if ours[hash] {
			continue
		}
		word := "for-" + short(c)
		if slices.Contains(have, word) {
			if err := p.remove(imagePart(hash, word)); err != nil {
				return err
			}
		}
		needed := slices.ContainsFunc(have, func(what string) bool { return what != word && strings.HasPrefix(what, "for-") })
		if needed || anybodys[hash] || stands[imagePart(hash, "disk")] {
			continue
		}
		// ok goes first: what is not complete is no image.
		for _, what := range []string{"ok", "disk", "initrd", "kernel"} {
			if err := p.remove(imagePart(hash, what)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pool) removeIfEmpty() error {
	p.h.storage.Lock()
	defer p.h.storage.Unlock()
	names, err := p.volumes()
	if err != nil || len(names) > 0 || !p.ours {
		return err
	}
	if err := p.about("remove the pool"); err != nil {
		return err
	}
	if err := p.p.Destroy(); err != nil {
		return err
	}
	// The folder may be somebody's mount point, or hold what libvirt does not show.
	_ = p.p.Delete(0)
	return p.p.Undefine()
}
