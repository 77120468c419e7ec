package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/libvirt/seed"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Ensure creates a machine: first the seed, then the disks, then the domain. Then it starts the domain. If the domain
// exists, the seed and disks are complete. If it does not exist, they may be incomplete, and are recreated if spec.NewDisks is set.
func (h *Hypervisor) Ensure(ctx context.Context, c provider.Cluster, net provider.Network, spec provider.Spec) error {
	err := h.runOperation(ctx, func(s *session) error { return s.ensure(c, net, spec) })
	return h.wrapError(spec.Node, "create the machine", err, "")
}

func (s *session) ensure(c provider.Cluster, net provider.Network, spec provider.Spec) error {
	m := domainxml.Machine{Cluster: c, Network: net, Spec: spec, Image: spec.Image.Hash, Host: s.host.xml}
	d, err := s.findMachine(c, spec.Node)
	if err != nil {
		return err
	}
	if d != nil {
		defer d.free()
		if !d.isMachineOfNode(c, spec.Node) {
			return s.h.wrapError(spec.Node, "create the machine", fmt.Errorf("domain %s: %w", d.Name, provider.ErrForeign),
				fmt.Sprintf("choose another cluster.name, or remove that machine: virsh -c %s undefine %s", s.h.o.URI, d.Name))
		}
		m.Image = d.Mark.Image
	}
	method, err := s.identityMethod(spec)
	if err != nil {
		return err
	}
	if _, err := domainxml.Domain(m); err != nil { // return an error for invalid XML of the role before any change
		return err
	}
	p, err := s.ensurePool()
	if err != nil {
		return err
	}
	defer p.free()
	hasRoot, err := p.hasVolume(p.rootVolumeName(c, spec.Node))
	if err != nil {
		return err
	}
	keep := hasRoot && (d != nil || !spec.NewDisks)
	if !keep && !spec.NewDisks {
		return p.newNoDiskError(spec.Node, p.rootVolumeName(c, spec.Node))
	}
	if err := p.ensureSeed(&m, method, keep); err != nil {
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
			if err := s.shutDownDomain(d.d, s.h.shutdownTimeout); err != nil {
				return s.h.wrapError(spec.Node, "shut down", err, "")
			}
		}
		if d, err = s.defineDomain(m); err != nil {
			return s.h.wrapError(spec.Node, "define", err, "")
		}
		defer d.free()
	} else if err := s.reconnectDomain(d); err != nil {
		return s.h.wrapError(spec.Node, "reconnect it to its network", err, "stop the machine, so that the next apply starts it: virsh -c "+s.h.o.URI+" destroy "+d.Name)
	}
	return s.startDomain(spec.Node, d.d)
}

// identityMethod returns the method by which the machine gets its identity, its SSH keys and its node.json, on this
// hypervisor. It returns an error if the hypervisor's machines do not support the method in the hive.
func (s *session) identityMethod(spec provider.Spec) (provider.Method, error) {
	m := spec.Identity.Method
	container := s.host.kind == provider.Container
	switch {
	case (m == provider.Auto || m == "") && container, m == provider.Files && container:
		return provider.Files, nil
	case m == provider.Auto || m == "":
		return provider.Credentials, nil
	case container:
		return "", fmt.Errorf("role %s: a container cannot get its identity by %s: use files or auto", spec.Role, m)
	case m == provider.Files:
		return "", fmt.Errorf("role %s: a virtual machine cannot get its identity by files: use credentials, cloud-init or auto", spec.Role)
	}
	return m, nil
}

// newNoDiskError returns the error for a disk that Ensure must not create.
func (p *pool) newNoDiskError(node, name string) error {
	return p.h.wrapError(node, "check the disks", fmt.Errorf("%w: pool %s has no volume %s", provider.ErrNoDisk, p.h.o.Pool, name),
		fmt.Sprintf("restore the volume %s; or create the machine again without its data: nixbench destroy --on %s, then nixbench apply", p.pathOf(name), node))
}

// ensureSeed writes the machine's identity to the pool and sets its path in m.Files. If keep is set, an existing seed is kept.
func (p *pool) ensureSeed(m *domainxml.Machine, method provider.Method, keep bool) error {
	node, id := m.Spec.Node, m.Spec.Identity
	var name string
	var data []byte
	switch method {
	case provider.Files:
		name = machineVolumeName(m.Cluster, node, "seed")
		m.Files.Seed = p.pathOf(name)
	case provider.Credentials:
		name, data = machineVolumeName(m.Cluster, node, "credential"), seed.Tmpfiles(id)
		m.Files.Credential = p.pathOf(name)
	case provider.CloudInit:
		var err error
		if data, err = seed.CloudInit(node, id); err != nil {
			return err
		}
		name = machineVolumeName(m.Cluster, node, "cidata")
		m.Files.CloudInit = p.pathOf(name)
	}
	if keep {
		there, err := p.hasVolume(name)
		if err != nil || there {
			return err
		}
	}
	if method == provider.Files {
		return p.createFolder(name, seed.Container(node, id))
	}
	return p.uploadBytes(domainxml.Volume{Name: name, Format: "raw", Mode: "0600"}, data)
}

// ensureDisks creates the machine's disks and sets their paths in m.Files. If keep is set, it keeps existing disks, and creates only those
// that the domain d does not have yet.
func (p *pool) ensureDisks(m *domainxml.Machine, d *domain, keep bool) error {
	node, image := m.Spec.Node, m.Spec.Image
	if p.host.kind == provider.VM && image.Kernel != "" {
		// m.Image, not image: an existing machine keeps the kernel of the image that it was created from.
		m.Files.Kernel = p.pathOf(imageVolumeName(m.Image, "kernel"))
		if image.Initrd != "" {
			m.Files.Initrd = p.pathOf(imageVolumeName(m.Image, "initrd"))
		}
	}
	root := p.rootVolumeName(m.Cluster, node)
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
		vol, err := p.createVolume(domainxml.Volume{Name: name, Format: "qcow2", Capacity: size, Mode: "0600"})
		if err != nil {
			return p.addFreeSpace(err)
		}
		_ = vol.Free()
	}
	return nil
}

func (p *pool) createRootDisk(name string, spec provider.Spec) error {
	ready, err := p.hasVolume(imageVolumeName(spec.Image.Hash, "ok"))
	if err != nil {
		return err
	}
	if !ready {
		return fmt.Errorf("the image %s is not in the storage pool", spec.Image.Hash)
	}
	var imageSize uint64
	if !p.host.test {
		if imageSize, err = checkImage(spec.Image, p.host.kind); err != nil {
			return p.h.wrapError(spec.Node, "check the image", err, "build the image again")
		}
	}
	if p.host.kind == provider.Container {
		if n := len(p.pathOf(name)); n > maxLoopPath {
			return p.h.wrapError(spec.Node, "create the root disk", fmt.Errorf("its path %s has %d bytes, and libvirt allows at most %d", p.pathOf(name), n, maxLoopPath),
				"give the hypervisor a shorter poolPath and another pool")
		}
		// The disk has the size of the image and not the size in the hive, because the file system in the image would not
		// grow to the size of a larger disk.
		if err := p.acquireSlot(p.h.uploads); err != nil {
			return err
		}
		defer func() { <-p.h.uploads }()
		return p.uploadFile(domainxml.Volume{Name: name, Format: "raw", Mode: "0600"}, spec.Image.Disk)
	}
	vol, err := p.createVolume(domainxml.Volume{
		Name: name, Format: "qcow2", Capacity: max(spec.Disk, imageSize), Mode: "0600",
		Backing: p.pathOf(imageVolumeName(spec.Image.Hash, "disk")), BackingFormat: string(spec.Image.Format),
	})
	if err != nil {
		return p.addFreeSpace(err)
	}
	return vol.Free()
}

// defineDomain creates the domain, or redefines an existing domain that is off.
func (s *session) defineDomain(m domainxml.Machine) (*domain, error) {
	text, err := domainxml.Domain(m)
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
	return &domain{d: d, DomainInfo: domainxml.DomainInfo{Name: domainxml.DomainName(m.Cluster, m.Spec.Node)}}, nil
}

// startDomain starts or resumes a domain that does not run. A crashed domain is destroyed first.
func (s *session) startDomain(node string, d *libvirt.Domain) error {
	switch state, err := stateOf(d); {
	case err != nil || state == provider.Running:
		return err
	case state == provider.Paused:
		if err := s.beforeChange("resume the domain"); err != nil {
			return err
		}
		return s.h.wrapError(node, "resume", resumeDomain(d), "")
	case state == provider.Crashed:
		if err := s.destroyDomain(d); err != nil {
			return err
		}
	}
	if err := s.beforeChange("start the domain"); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := d.Create()
		if err == nil {
			break
		}
		if on, _ := isActive(d); on {
			break
		}
		// Retry: containers that start at the same time may choose the same free loop device.
		if tries == 20 || !strings.Contains(err.Error(), "to loop device: Device or resource busy") {
			return s.h.wrapError(node, "start", err, "")
		}
		if err := s.sleep(time.Duration(tries) * 20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// stateOf returns the run state of a domain. It returns Running for a domain that libvirt pauses briefly,
// for instance during a save or a migration.
func stateOf(d *libvirt.Domain) (provider.State, error) {
	state, reason, err := d.GetState()
	if err != nil {
		return "", err
	}
	switch state {
	case libvirt.DOMAIN_PAUSED:
		switch libvirt.DomainPausedReason(reason) {
		case libvirt.DOMAIN_PAUSED_MIGRATION, libvirt.DOMAIN_PAUSED_SAVE, libvirt.DOMAIN_PAUSED_DUMP, libvirt.DOMAIN_PAUSED_SNAPSHOT,
			libvirt.DOMAIN_PAUSED_STARTING_UP, libvirt.DOMAIN_PAUSED_SHUTTING_DOWN:
			return provider.Running, nil
		case libvirt.DOMAIN_PAUSED_CRASHED:
			return provider.Crashed, nil
		}
		return provider.Paused, nil
	case libvirt.DOMAIN_PMSUSPENDED:
		return provider.Paused, nil
	case libvirt.DOMAIN_CRASHED:
		if active, err := d.IsActive(); err != nil || active {
			return provider.Crashed, err
		}
		return provider.Off, nil
	case libvirt.DOMAIN_SHUTOFF, libvirt.DOMAIN_NOSTATE:
		return provider.Off, nil
	}
	return provider.Running, nil
}

// resumeDomain resumes a paused domain, or wakes up a suspended domain.
func resumeDomain(d *libvirt.Domain) error {
	if state, _, err := d.GetState(); err == nil && state == libvirt.DOMAIN_PMSUSPENDED {
		return d.PMWakeup(0)
	}
	return d.Resume()
}

// isActive reports whether the domain is active: running, paused or crashed.
func isActive(d *libvirt.Domain) (bool, error) {
	state, err := stateOf(d)
	return state != provider.Off && err == nil, err
}

// shutDownDomain asks the guest to shut down, and destroys the domain if libvirt refuses to ask, or the guest has not shut down within
// the time limit.
func (s *session) shutDownDomain(d *libvirt.Domain, limit time.Duration) error {
	if err := s.askToShutDown(d, limit); err != nil && !errors.Is(err, provider.ErrRefused) {
		return err
	}
	return s.destroyDomain(d)
}

// askToShutDown asks the guest to shut down, and waits until the domain is off or the time limit has passed. A crashed domain is destroyed.
func (s *session) askToShutDown(d *libvirt.Domain, limit time.Duration) error {
	state, err := stateOf(d)
	if err != nil || state == provider.Off {
		return err
	}
	if err := s.beforeChange("shut the domain down"); err != nil {
		return err
	}
	switch state {
	case provider.Paused: // a paused guest cannot shut down
		_ = resumeDomain(d)
	case provider.Crashed:
		return s.destroyDomain(d)
	}
	ways := []func() error{d.Shutdown} // ACPI power button
	if s.host.kind == provider.Container {
		ways = []func() error{
			// systemd powers off on SIGRTMIN+4, which libvirt calls RT6: libvirt counts real-time signals
			// from 32, and glibc's SIGRTMIN is 34. Other init programs ignore the signal.
			func() error { return d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_RT6, 0) },
			func() error { return d.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_INITCTL) },
			func() error { return d.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_SIGNAL) },
		}
	}
	return s.askUntilOff(ways, func() (bool, error) { return isActive(d) }, limit)
}

// askUntilOff asks the guest in one way after the other until the domain is not active, or the time limit has passed. A way fails if the
// guest has just shut down, or does not support it. If all of them fail and the domain is active a second later, it returns [provider.ErrRefused].
func (s *session) askUntilOff(ways []func() error, isActive func() (bool, error), limit time.Duration) error {
	var refusals []string
	var lastAsked time.Time
	for since, asked := time.Now(), 0; time.Since(since) < limit; {
		if asked < len(ways) && (asked == len(refusals) || time.Since(since) >= time.Duration(asked)*s.h.shutdownTimeout/20) {
			if err := ways[asked](); err != nil {
				_, inner := explainError(err)
				refusals = append(refusals, inner.Error())
			}
			asked, lastAsked = asked+1, time.Now()
		}
		if on, err := isActive(); err != nil || !on {
			return err
		}
		if len(refusals) == len(ways) && time.Since(lastAsked) > time.Second {
			return fmt.Errorf("%w: %s", provider.ErrRefused, strings.Join(refusals, "; "))
		}
		if err := s.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// destroyDomain stops a domain at once, as a power failure does. It does not remove the definition.
func (s *session) destroyDomain(d *libvirt.Domain) error {
	on, err := isActive(d)
	if isNotFound(err) || err == nil && !on {
		return nil
	}
	if err := s.beforeChange("end the domain"); err != nil {
		return err
	}
	if s.host.kind == provider.Container {
		// Kill the container's first process, so that the kernel kills the other processes. d.Destroy takes
		// seconds, because libvirt searches cgroups for the processes.
		_ = d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_KILL, 0)
		for range 50 {
			if on, err := isActive(d); err == nil && !on {
				return nil
			}
			if err := s.sleep(20 * time.Millisecond); err != nil {
				return err
			}
		}
	}
	err = d.Destroy()
	if on, stateErr := isActive(d); isNotFound(stateErr) || stateErr == nil && !on {
		return nil
	}
	return err
}
