package libvirt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Ensure creates a machine: first the seed, then the disks, then the domain. Then it starts the domain. The seed is a
// volume with the identity of the machine. If the domain already exists, the seed and the disks are complete. If the
// domain does not exist, they may be incomplete: Ensure then creates them again if spec.NewDisks is set.
func (h *Hypervisor) Ensure(ctx context.Context, c provider.Cluster, net provider.Network, spec provider.Spec) error {
	return h.execute(ctx, spec.Node, "create the machine", "", func(s *session) error { return s.ensureMachine(c, net, spec) })
}

func (s *session) ensureMachine(c provider.Cluster, net provider.Network, spec provider.Spec) error {
	m := machine{Cluster: c, Network: net, Spec: spec, Image: spec.Image.Hash, Host: s.host}
	d, err := s.findOwnMachine(c, spec.Node, "create the machine")
	if err != nil {
		return err
	}
	if d != nil {
		m.Image = d.Mark.Image
	}
	if _, err := domainXML(m); err != nil { // before any change, return an error if the XML of the role is invalid
		return err
	}
	p, err := s.ensurePool()
	if err != nil {
		return err
	}
	root := s.host.rootVolumeName(c, spec.Node)
	hasRoot, err := p.hasVolume(root)
	if err != nil {
		return err
	}
	keep := hasRoot && (d != nil || !spec.NewDisks)
	if !keep && !spec.NewDisks {
		return p.newNoDiskError(spec.Node, root)
	}
	if err := p.ensureSeed(&m, keep); err != nil {
		return s.h.wrapError(spec.Node, "write the machine's identity", err, "")
	}
	if err := p.ensureDisks(&m, d, keep); err != nil {
		return s.h.wrapError(spec.Node, "create the disks", err, "")
	}
	if s.host.kind == provider.VM {
		m.Files.Console = p.pathOf(machineVolumeName(c, spec.Node, "console"))
	}
	if d == nil || !keep || d.Mark.Definition != spec.Definition() {
		if d != nil {
			if err := d.shutDownOrDestroy(); err != nil {
				return s.h.wrapError(spec.Node, "shut down", err, "")
			}
		}
		if d, err = s.defineDomain(m); err != nil {
			return s.h.wrapError(spec.Node, "define", err, "")
		}
	}
	return d.startOrResume(spec.Node)
}

// newNoDiskError returns the error for a missing disk of an existing machine. Ensure must not create this disk again.
func (p *pool) newNoDiskError(node, name string) error {
	return p.h.wrapError(node, "check the disks", fmt.Errorf("%w: pool %s has no volume %s", provider.ErrNoDisk, p.h.o.Pool, name),
		fmt.Sprintf("restore the volume %s; or create the machine again without its data: nixbench destroy --on %s, then nixbench apply", p.pathOf(name), node))
}

// ensureSeed writes the machine's identity to the pool and sets its paths in m.Files. If keep is set, an existing seed is kept.
func (p *pool) ensureSeed(m *machine, keep bool) error {
	write := func(what string, data []byte) (string, error) {
		name := machineVolumeName(m.Cluster, m.Spec.Node, what)
		if keep {
			if there, err := p.hasVolume(name); err != nil || there {
				return p.pathOf(name), err
			}
		}
		return p.pathOf(name), p.uploadBytes(volume{Name: name, Format: "raw", Mode: "0600"}, data)
	}
	var err error
	if p.host.kind == provider.VM {
		m.Files.Credential, err = write("credential", tmpfiles(m.Spec.Identity))
	} else if m.Files.Credential, err = write("seed", tmpfiles(m.Spec.Identity)); err == nil {
		m.Files.Hostname, err = write("hostname", []byte(m.Spec.Node+"\n"))
	}
	return err
}

// ensureDisks creates the machine's disks and sets their paths in m.Files. If keep is set, it keeps existing disks, and
// creates only new disks, which are not disks of the domain d.
func (p *pool) ensureDisks(m *machine, d *domain, keep bool) error {
	node, image := m.Spec.Node, m.Spec.Image
	if p.host.kind == provider.VM && image.Kernel != "" {
		// Use m.Image and not spec.Image: an existing machine keeps the kernel of the image from which it was created.
		m.Files.Kernel = p.pathOf(imageVolumeName(m.Image, "kernel"))
		if image.Initrd != "" {
			m.Files.Initrd = p.pathOf(imageVolumeName(m.Image, "initrd"))
		}
	}
	root := p.host.rootVolumeName(m.Cluster, node)
	m.Files.Root = p.pathOf(root)
	if !keep {
		m.Image = image.Hash
		if err := p.createRootDisk(root, m.Spec); err != nil {
			return err
		}
	}
	if p.host.kind == provider.Container {
		return nil
	}
	for i, size := range m.Spec.Disks {
		name := machineVolumeName(m.Cluster, node, fmt.Sprintf("disk%d", i+1))
		m.Files.Disks = append(m.Files.Disks, p.pathOf(name))
		if keep {
			there, err := p.hasVolume(name)
			switch {
			case err != nil:
				return err
			case there:
				continue
			case d == nil || slices.Contains(d.Disks, p.pathOf(name)):
				return p.newNoDiskError(node, name)
			}
		}
		if _, err := p.createVolume(volume{Name: name, Format: "qcow2", Capacity: size, Mode: "0600"}); err != nil {
			return err
		}
	}
	return nil
}

// createRootDisk creates the root disk of a machine. A virtual machine gets an overlay on the image in the pool, a container a copy.
func (p *pool) createRootDisk(name string, spec provider.Spec) error {
	ready, err := p.hasVolume(imageVolumeName(spec.Image.Hash, "ok"))
	if err != nil {
		return err
	}
	if !ready {
		return fmt.Errorf("the image %s is not in the storage pool", spec.Image.Hash)
	}
	if err := provider.CheckImage(spec.Image, p.host.kind); err != nil {
		return p.h.wrapError(spec.Node, "check the image", err, "build the image again")
	}
	if p.host.kind == provider.Container {
		if n := len(p.pathOf(name)); n > maxLoopPath {
			return p.h.wrapError(spec.Node, "create the root disk", fmt.Errorf("its path %s has %d bytes, and libvirt allows at most %d", p.pathOf(name), n, maxLoopPath),
				"give the hypervisor a shorter poolPath and another pool")
		}
		// With several uploads at once, no container would boot before almost all uploads have ended. The lock is held until this
		// operation ends: its context ends then, also if libvirt never answers.
		for !p.h.creating.TryLock() {
			if err := p.sleep(20 * time.Millisecond); err != nil {
				return err
			}
		}
		context.AfterFunc(p.ctx, p.h.creating.Unlock)
		// The disk has the size of the image and not the size in the hive, because the file system in the image would not
		// grow to the size of a larger disk.
		return p.uploadFile(volume{Name: name, Format: "raw", Mode: "0600"}, spec.Image.Disk)
	}
	_, err = p.createVolume(volume{
		Name: name, Format: "qcow2", Capacity: max(spec.Disk, spec.Image.Size), Mode: "0600",
		Backing: p.pathOf(imageVolumeName(spec.Image.Hash, "disk")), BackingFormat: string(spec.Image.Format),
	})
	return err
}

func (s *session) defineDomain(m machine) (*domain, error) {
	text, err := domainXML(m)
	if err != nil {
		return nil, err
	}
	if err := s.beforeChange("define the domain"); err != nil {
		return nil, err
	}
	d, err := s.conn.DomainDefineXML(text)
	if err != nil {
		return nil, err
	}
	return s.describeDomain(d)
}

// Check implements [provider.Provider]. Errors in the XML that only libvirt detects are reported later, when the machine is defined.
func (h *Hypervisor) Check(ctx context.Context, c provider.Cluster, net provider.Network, spec provider.Spec) error {
	return h.runOperation(ctx, func(s *session) error {
		if spec.Image.Disk == "" && spec.Image.Hash == "" {
			spec.Firmware = provider.UEFI // the image is not known yet, and the check of a machine with a BIOS could fail only for this reason
		}
		if _, err := domainXML(machine{Cluster: c, Network: net, Spec: spec, Host: s.host}); err != nil {
			return h.wrapError("", "check the machine's XML", err, fmt.Sprintf("fix roles.%s.xml, or what the message names", spec.Role))
		}
		const maxContainerName = 64 // bytes; libvirt uses the name as the host name, which Linux limits
		if name := c.MachineName(spec.Node); s.host.kind == provider.Container && len(name) > maxContainerName {
			return h.wrapError(spec.Node, "check the machine's name", fmt.Errorf("%s has %d bytes, and the name of a container at most %d", name, len(name), maxContainerName),
				"choose a shorter meta.name, or a shorter name for the role")
		}
		if spec.Image.Disk == "" {
			return nil
		}
		return h.wrapError("", fmt.Sprintf("check the image of role %s", spec.Role), provider.CheckImage(spec.Image, s.host.kind), "build the image again, or set another roles."+spec.Role+".image")
	})
}
