package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Clean removes the cluster's networks that no machine uses, the images that no volume is based on and no
// cluster needs, and the pool if it is empty and nixbench created it. It returns the networks and images that it
// keeps because they are in use.
func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster) ([]provider.Remaining, error) {
	var left []provider.Remaining
	err := h.runOperation(ctx, func(s *session) error {
		networks, err := s.cleanNetworks(c)
		if err != nil {
			return h.wrapError("", "remove unused networks", err, "")
		}
		images, err := s.cleanPool(c)
		left = append(networks, images...)
		return h.wrapError("", "remove unused images", err, "")
	})
	if err != nil { // left is not read, because the abandoned operation may still write it
		return nil, err
	}
	return left, nil
}

func (s *session) cleanNetworks(c provider.Cluster) ([]provider.Remaining, error) {
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	// All networks of the cluster are examined, because the network may have another name in the hive now.
	all, err := s.listNetworks()
	if err != nil {
		return nil, err
	}
	var left []provider.Remaining
	for _, n := range all {
		defer n.free()
		if !n.BelongsTo(c) {
			continue
		}
		users, err := s.listNetworkUsers(c, n)
		if err == nil && len(users) == 0 {
			err = s.removeNetwork(n)
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

// listNetworkUsers describes the machines on a network: the domains that refer to the network, running or not, and
// machines of other libvirt drivers, of which only the ports are visible. While the whole cluster is being removed,
// it ignores the ports of the cluster's machines. Such a port is stale: libvirtd was killed while it started or
// stopped the machine.
func (s *session) listNetworkUsers(c provider.Cluster, n *network) ([]string, error) {
	domains, err := s.listDomains()
	if err != nil {
		return nil, err
	}
	var users []string
	known := map[string]bool{}
	for _, d := range domains {
		defer d.free()
		if d.UsesNetwork(n.Name) {
			users = append(users, "machine "+d.Name)
			known[d.UUID] = true
		}
	}
	if !n.active {
		return users, nil
	}
	if err := n.readPorts(); err != nil {
		return nil, err
	}
	for _, p := range n.ports {
		node, named := strings.CutPrefix(p.Owner, domainxml.DomainName(c, ""))
		stale := named && s.h.isRemovingCluster(c) && p.OwnerUUID == domainxml.DomainUUID(c, node)
		if known[p.OwnerUUID] || stale {
			continue
		}
		users = append(users, fmt.Sprintf("machine %s of another libvirt driver (or, if there is none, its stale port: virsh net-port-delete %s %s)", p.Owner, n.Name, p.UUID))
	}
	return users, nil
}

func (s *session) cleanPool(c provider.Cluster) ([]provider.Remaining, error) {
	p, err := s.findPool()
	if err != nil || p == nil {
		return nil, err
	}
	defer p.free()
	if err := p.refresh(); err != nil {
		return nil, err
	}
	left, err := p.cleanImages(c)
	if err != nil {
		return nil, err
	}
	return left, p.removePoolIfEmpty()
}

func (p *pool) cleanImages(c provider.Cluster) ([]provider.Remaining, error) {
	volumes, err := p.p.ListAllStorageVolumes(0)
	if err != nil {
		return nil, err
	}
	images := map[string][]string{} // parts of each image, by the image's hash
	basedOn := map[string]string{}  // a volume that is based on a backing file, by the name of the file
	for i := range volumes {
		name, err := volumes[i].GetName()
		if m := imageVolumePattern.FindStringSubmatch(name); err == nil && m != nil {
			images[m[1]] = append(images[m[1]], m[2])
		} else if err == nil {
			basedOn[path.Base(backingFile(&volumes[i]))] = "volume " + name
		}
		_ = volumes[i].Free()
	}
	domains, err := p.listDomains()
	if err != nil {
		return nil, err
	}
	ours, users := map[string]bool{}, map[string]string{}
	for _, d := range domains {
		defer d.free()
		if d.Mark != nil {
			users[d.Mark.Image] = "machine " + d.Name
			ours[d.Mark.Image] = ours[d.Mark.Image] || d.IsMachineOf(c)
		}
	}
	var left []provider.Remaining
	for _, hash := range slices.Sorted(maps.Keys(images)) {
		have := images[hash]
		if ours[hash] {
			continue
		}
		word := "for-" + shortID(c)
		marked := slices.Contains(have, word)
		needed := slices.ContainsFunc(have, func(what string) bool { return what != word && strings.HasPrefix(what, "for-") })
		user := cmp.Or(basedOn[imageVolumeName(hash, "disk")], users[hash])
		if user != "" && !needed && slices.Contains(have, "disk") { // images for containers have no disk in the pool
			if marked { // the cluster's marker is not removed, so that the next Clean finds the image again
				left = append(left, provider.Remaining{What: "image " + hash, Why: user + " was made from it", Fix: "remove that " + strings.Fields(user)[0]})
			}
			continue
		}
		if marked {
			if err := p.removeVolume(imageVolumeName(hash, word)); err != nil {
				return nil, err
			}
		}
		if needed {
			continue
		}
		// Remove the marker ok first: an image without the marker is treated as incomplete.
		for _, what := range []string{"ok", "disk", "initrd", "kernel"} {
			if err := p.removeVolume(imageVolumeName(hash, what)); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

func (p *pool) removePoolIfEmpty() error {
	p.h.storage.Lock()
	defer p.h.storage.Unlock()
	names, err := p.listVolumeNames()
	if err != nil || len(names) > 0 || !p.ours {
		return err
	}
	if err := p.beforeChange("remove the pool"); err != nil {
		return err
	}
	if err := p.p.Destroy(); err != nil {
		return err
	}
	if p.createdFolder {
		// An error is ignored: libvirt cannot remove a folder that is a mount point or contains files that libvirt
		// does not list.
		_ = p.p.Delete(0)
	}
	return p.p.Undefine()
}
