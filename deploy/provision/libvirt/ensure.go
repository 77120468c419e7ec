package libvirt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
	"github.com/nixbench/nixbench/deploy/provision/seed"
)

// Ensure creates a machine: first its seed, then its disks, then the domain, and starts it. The domain's
// existence proves that seed and disks are complete. If there is no domain, they may be incomplete and are
// recreated.
func (h *Hypervisor) Ensure(ctx context.Context, c provision.Cluster, net provision.Network, spec provision.Spec) error {
	err := h.run(ctx, func(s *session) error { return s.ensure(c, net, spec) })
	return h.fail(spec.Node, "create the machine", err, "")
}

func (s *session) ensure(c provision.Cluster, net provision.Network, spec provision.Spec) error {
	m := domainxml.Machine{Cluster: c, Network: net, Spec: spec, Image: spec.Image.Hash, Host: s.host.xml}
	d, err := s.findMachine(c, spec.Node)
	if err != nil {
		return err
	}
	if d != nil {
		defer d.free()
		if !d.ours(c, spec.Node) {
			return s.h.fail(spec.Node, "create the machine", fmt.Errorf("domain %s: %w", d.Name, provision.ErrForeign),
				fmt.Sprintf("choose another cluster.name, or remove that machine: virsh -c %s undefine %s", s.h.o.URI, d.Name))
		}
		m.Image = d.Mark.Image
	}
	method, err := s.identityMethod(spec)
	if err != nil {
		return err
	}
	if _, err := domainxml.Domain(m); err != nil { // the role's XML may be invalid
		return err
	}
	p, err := s.makePool()
	if err != nil {
		return err
	}
	defer p.free()
	if err := p.makeSeed(&m, method, d != nil); err != nil {
		return s.h.fail(spec.Node, "write the machine's identity", err, "")
	}
	if err := p.makeDisks(&m, d != nil); err != nil {
		return s.h.fail(spec.Node, "create the disks", err, "")
	}
	if s.host.kind == provision.VM {
		m.Files.Console = p.pathOf(machinePart(c, spec.Node, "console"))
	}
	if d == nil || d.Mark.Definition != spec.Definition() {
		if d != nil {
			if err := s.shutdown(d.d); err != nil {
				return s.h.fail(spec.Node, "shut down", err, "")
			}
		}
		if d, err = s.define(m); err != nil {
			return s.h.fail(spec.Node, "define", err, "")
		}
		defer d.free()
	} else if err := s.reconnect(d); err != nil {
		return s.h.fail(spec.Node, "reconnect it to its network", err, "stop the machine, so that the next apply starts it: virsh -c "+s.h.o.URI+" destroy "+d.Name)
	}
	return s.start(spec.Node, d.d)
}

// identityMethod returns the method by which the machine gets its identity on this hypervisor.
func (s *session) identityMethod(spec provision.Spec) (provision.Method, error) {
	m := spec.Identity.Method
	container := s.host.kind == provision.Container
	switch {
	case (m == provision.Auto || m == "") && container, m == provision.Files && container:
		return provision.Files, nil
	case m == provision.Auto || m == "":
		return provision.Credentials, nil
	case container:
		return "", fmt.Errorf("role %s: a container cannot get its identity by %s: use files or auto", spec.Role, m)
	case m == provision.Files:
		return "", fmt.Errorf("role %s: a virtual machine cannot get its identity by files: use credentials, cloud-init or auto", spec.Role)
	}
	return m, nil
}

func (p *pool) makeSeed(m *domainxml.Machine, method provision.Method, complete bool) error {
	node, id := m.Spec.Node, m.Spec.Identity
	var name string
	var data []byte
	switch method {
	case provision.Files:
		name = machinePart(m.Cluster, node, "seed")
		m.Files.Seed = p.pathOf(name)
	case provision.Credentials:
		name, data = machinePart(m.Cluster, node, "credential"), seed.Tmpfiles(id)
		m.Files.Credential = p.pathOf(name)
	case provision.CloudInit:
		var err error
		if data, err = seed.CloudInit(node, id); err != nil {
			return err
		}
		name = machinePart(m.Cluster, node, "cidata")
		m.Files.CloudInit = p.pathOf(name)
	}
	if complete {
		there, err := p.has(name)
		if err != nil || there {
			return err
		}
	}
	if method == provision.Files {
		return p.makeFolder(name, seed.Container(node, id))
	}
	return p.uploadBytes(domainxml.Volume{Name: name, Format: "raw", Mode: "0600"}, data)
}

func (p *pool) makeDisks(m *domainxml.Machine, complete bool) error {
	node, image := m.Spec.Node, m.Spec.Image
	if p.host.kind == provision.VM && image.Kernel != "" {
		// An existing machine keeps the kernel that it was created with.
		m.Files.Kernel = p.pathOf(imagePart(m.Image, "kernel"))
		if image.Initrd != "" {
			m.Files.Initrd = p.pathOf(imagePart(m.Image, "initrd"))
		}
	}
	root := p.rootPart(m.Cluster, node)
	m.Files.Root = p.pathOf(root)
	there := false
	var err error
	if complete {
		if there, err = p.has(root); err != nil {
			return err
		}
	}
	if !there {
		m.Image = image.Hash
		if err := p.makeRoot(root, m.Spec); err != nil {
			return err
		}
	}
	if p.host.kind == provision.Container {
		return nil
	}
	for i, size := range m.Spec.Disks {
		name := machinePart(m.Cluster, node, fmt.Sprintf("disk%d", i+1))
		m.Files.Disks = append(m.Files.Disks, p.pathOf(name))
		if complete {
			if there, err := p.has(name); err != nil {
				return err
			} else if there {
				continue
			}
		}
		vol, err := p.create(domainxml.Volume{Name: name, Format: "qcow2", Capacity: size, Mode: "0600"})
		if err != nil {
			return p.addFreeSpace(err)
		}
		_ = vol.Free()
	}
	return nil
}

func (p *pool) makeRoot(name string, spec provision.Spec) error {
	ready, err := p.has(imagePart(spec.Image.Hash, "ok"))
	if err != nil {
		return err
	}
	if !ready {
		return fmt.Errorf("the image %s is not in the storage pool", spec.Image.Hash)
	}
	var imageSize uint64
	if !p.host.test {
		if imageSize, err = checkImage(spec.Image, p.host.kind); err != nil {
			return p.h.fail(spec.Node, "check the image", err, "build the image again")
		}
	}
	if p.host.kind == provision.Container {
		if n := len(p.pathOf(name)); n > maxLoopPath {
			return p.h.fail(spec.Node, "create the root disk", fmt.Errorf("its path %s has %d bytes, and libvirt allows at most %d", p.pathOf(name), n, maxLoopPath),
				"give the hypervisor a shorter poolPath and another pool")
		}
		// The size of the file system is fixed by the image; a larger file would not change it.
		if err := p.acquireSlot(p.h.uploads); err != nil {
			return err
		}
		defer func() { <-p.h.uploads }()
		return p.uploadFile(domainxml.Volume{Name: name, Format: "raw", Mode: "0600"}, spec.Image.Disk)
	}
	vol, err := p.create(domainxml.Volume{
		Name: name, Format: "qcow2", Capacity: max(spec.Disk, imageSize), Mode: "0600",
		Backing: p.pathOf(imagePart(spec.Image.Hash, "disk")), BackingFormat: string(spec.Image.Format),
	})
	if err != nil {
		return p.addFreeSpace(err)
	}
	return vol.Free()
}

// define creates the domain, or redefines one that is off.
func (s *session) define(m domainxml.Machine) (*domain, error) {
	text, err := domainxml.Domain(m)
	if err != nil {
		return nil, err
	}
	if err := s.beforeEffect("define the domain"); err != nil {
		return nil, err
	}
	d, err := s.conn.DomainDefineXML(text)
	if err != nil {
		return nil, err
	}
	return &domain{d: d, DomainInfo: domainxml.DomainInfo{Name: domainxml.DomainName(m.Cluster, m.Spec.Node)}}, nil
}

func (s *session) start(node string, d *libvirt.Domain) error {
	switch state, err := stateOf(d); {
	case err != nil || state == provision.Running:
		return err
	case state == provision.Paused:
		if err := s.beforeEffect("resume the domain"); err != nil {
			return err
		}
		return s.h.fail(node, "resume", resume(d), "")
	case state == provision.Crashed:
		if err := s.destroy(d); err != nil {
			return err
		}
	}
	if err := s.beforeEffect("start the domain"); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := d.Create()
		if err == nil {
			break
		}
		if on, _ := running(d); on {
			break
		}
		// Containers that start concurrently may choose the same free loop device.
		if tries == 20 || !strings.Contains(err.Error(), "to loop device: Device or resource busy") {
			return s.h.fail(node, "start", err, "")
		}
		if err := s.sleep(time.Duration(tries) * 20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// stateOf returns the run state of a domain. A domain that is paused briefly for a save or a migration
// counts as running.
func stateOf(d *libvirt.Domain) (provision.State, error) {
	state, reason, err := d.GetState()
	if err != nil {
		return "", err
	}
	switch state {
	case libvirt.DOMAIN_PAUSED:
		switch libvirt.DomainPausedReason(reason) {
		case libvirt.DOMAIN_PAUSED_MIGRATION, libvirt.DOMAIN_PAUSED_SAVE, libvirt.DOMAIN_PAUSED_DUMP, libvirt.DOMAIN_PAUSED_SNAPSHOT,
			libvirt.DOMAIN_PAUSED_STARTING_UP, libvirt.DOMAIN_PAUSED_SHUTTING_DOWN:
			return provision.Running, nil
		case libvirt.DOMAIN_PAUSED_CRASHED:
			return provision.Crashed, nil
		}
		return provision.Paused, nil
	case libvirt.DOMAIN_PMSUSPENDED:
		return provision.Paused, nil
	case libvirt.DOMAIN_CRASHED:
		if active, err := d.IsActive(); err != nil || active {
			return provision.Crashed, err
		}
		return provision.Off, nil
	case libvirt.DOMAIN_SHUTOFF, libvirt.DOMAIN_NOSTATE:
		return provision.Off, nil
	}
	return provision.Running, nil
}

// resume continues a paused or suspended domain.
func resume(d *libvirt.Domain) error {
	if state, _, err := d.GetState(); err == nil && state == libvirt.DOMAIN_PMSUSPENDED {
		return d.PMWakeup(0)
	}
	return d.Resume()
}

// running reports whether the domain has a guest, in whatever state.
func running(d *libvirt.Domain) (bool, error) {
	state, err := stateOf(d)
	return state != provision.Off && err == nil, err
}

// shutdown asks the guest to shut down, and destroys the domain if it does not within the timeout.
func (s *session) shutdown(d *libvirt.Domain) error {
	state, err := stateOf(d)
	if err != nil || state == provision.Off {
		return err
	}
	if err := s.beforeEffect("shut the domain down"); err != nil {
		return err
	}
	switch state {
	case provision.Paused: // a paused guest cannot react
		_ = resume(d)
	case provision.Crashed:
		return s.destroy(d)
	}
	ways := []func() error{d.Shutdown} // ACPI power button
	if s.host.kind == provision.Container {
		ways = []func() error{
			// systemd powers off on SIGRTMIN+4. libvirt's RT6 is that signal: the kernel counts real-time
			// signals from 32, and glibc's SIGRTMIN is 34. Other init programs ignore it.
			func() error { return d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_RT6, 0) },
			func() error { return d.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_INITCTL) },
			func() error { return d.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_SIGNAL) },
		}
	}
	for since, asked := time.Now(), 0; time.Since(since) < s.h.shutdownTimeout; {
		// Errors are ignored: all methods fail if the guest has just ended, and some if it does not support
		// them.
		if asked < len(ways) && time.Since(since) >= time.Duration(asked)*s.h.shutdownTimeout/20 {
			_ = ways[asked]()
			asked++
		}
		if on, err := running(d); err != nil || !on {
			return err
		}
		if err := s.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return s.destroy(d)
}

func (s *session) destroy(d *libvirt.Domain) error {
	on, err := running(d)
	if isNotFound(err) || err == nil && !on {
		return nil
	}
	if err := s.beforeEffect("end the domain"); err != nil {
		return err
	}
	if s.host.kind == provision.Container {
		// libvirt searches cgroups for the container's processes, which takes seconds. If its first process
		// is killed, the kernel kills the others.
		_ = d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_KILL, 0)
		for range 50 {
			if on, err := running(d); err == nil && !on {
				return nil
			}
			if err := s.sleep(20 * time.Millisecond); err != nil {
				return err
			}
		}
	}
	err = d.Destroy()
	if on, stateErr := running(d); isNotFound(stateErr) || stateErr == nil && !on {
		return nil
	}
	return err
}
