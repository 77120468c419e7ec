package libvirt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type domain struct {
	*session
	d *libvirt.Domain
	domainInfo
}

func (s *session) describeDomain(d *libvirt.Domain) (*domain, error) {
	s.freeAtEnd(d)
	text, err := d.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE)
	if err != nil {
		return nil, err
	}
	found := &domain{session: s, d: d}
	found.domainInfo, err = parseDomain(text)
	return found, err
}

// findMachine returns the domain with the UUID of the node's machine. If no domain has this UUID, it returns the domain
// with the machine's name. If no domain has this name either, it returns nil.
func (s *session) findMachine(c provider.Cluster, node string) (*domain, error) {
	d, err := s.conn.LookupDomainByUUIDString(domainUUID(c, node))
	if isNotFound(err) {
		d, err = s.conn.LookupDomainByName(c.MachineName(node))
	}
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.describeDomain(d)
}

// findOwnMachine returns the machine of a node, or nil if there is none. It fails if the domain with the machine's name
// does not belong to the cluster.
func (s *session) findOwnMachine(c provider.Cluster, node, op string) (*domain, error) {
	d, err := s.findMachine(c, node)
	if err != nil || d == nil || d.isMachineOfNode(c, node) {
		return d, err
	}
	return nil, s.h.wrapError(node, op, fmt.Errorf("domain %s: %w", d.Name, provider.ErrForeign),
		fmt.Sprintf("choose another cluster.name, or remove that machine: virsh -c %s undefine %s", s.h.o.URI, d.Name))
}

func (s *session) listDomains() ([]*domain, error) {
	all, err := s.conn.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	var found []*domain
	for i := range all {
		d, err := s.describeDomain(&all[i])
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		if err == nil {
			found = append(found, d)
		}
	}
	return found, nil
}

// process returns what identifies the process of an active domain, see [provider.Actual]: for a container, the id of the domain, which is
// the process id of its controller, else the UUID, which is an argument of QEMU.
func (d *domain) process() string {
	if d.host.kind != provider.Container {
		return d.UUID
	}
	id, err := d.d.GetID()
	if err != nil {
		return "" // the domain has ended
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (d *domain) isMachineOfNode(c provider.Cluster, node string) bool {
	return d.IsMachineOf(c) && d.Mark.Node == node
}

// stateOf returns whether a domain runs, is paused, or is off. It returns Running for a domain that libvirt pauses briefly,
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

func isActive(d *libvirt.Domain) (bool, error) {
	state, err := stateOf(d)
	return state != provider.Off && err == nil, err
}

// startOrResume starts or resumes a domain that does not run. A crashed domain is destroyed first.
func (d *domain) startOrResume(node string) error {
	switch state, err := stateOf(d.d); {
	case err != nil || state == provider.Running:
		return err
	case state == provider.Paused:
		return d.h.wrapError(node, "resume", d.change("resume the domain", d.resume), "")
	case state == provider.Crashed:
		if err := d.destroy(); err != nil {
			return err
		}
	}
	if err := d.beforeChange("start the domain"); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := d.d.Create()
		if err == nil {
			return nil
		}
		if on, _ := isActive(d.d); on {
			return nil
		}
		// Retry the start, because containers that start at the same time may choose the same free loop device.
		if tries == 20 || !strings.Contains(err.Error(), "to loop device: Device or resource busy") {
			return d.h.wrapError(node, "start", err, "")
		}
		if err := d.sleep(time.Duration(tries) * 20 * time.Millisecond); err != nil {
			return err
		}
	}
}

// shutDownOrDestroy asks the guest to shut down, and destroys the domain if libvirt refuses to ask, or the guest has not shut down within
// the time limit of a restart.
func (d *domain) shutDownOrDestroy() error {
	if err := d.askToShutDown(d.h.shutdownTimeout); err != nil && !errors.Is(err, provider.ErrRefused) {
		return err
	}
	return d.destroy()
}

// resume resumes a paused domain, or wakes up a suspended domain.
func (d *domain) resume() error {
	if state, _, err := d.d.GetState(); err == nil && state == libvirt.DOMAIN_PMSUSPENDED {
		return d.d.PMWakeup(0)
	}
	return d.d.Resume()
}

// askToShutDown asks the guest to shut down, and waits until the domain is off or the time limit has passed. A crashed domain is destroyed.
func (d *domain) askToShutDown(limit time.Duration) error {
	state, err := stateOf(d.d)
	if err != nil || state == provider.Off {
		return err
	}
	if err := d.beforeChange("shut the domain down"); err != nil {
		return err
	}
	switch state {
	case provider.Paused: // a paused guest cannot shut down
		_ = d.resume()
	case provider.Crashed:
		return d.destroy()
	}
	ask := d.d.Shutdown // ACPI power button
	if d.host.kind == provider.Container {
		// systemd powers off on SIGRTMIN+4, which libvirt calls RT6: libvirt counts real-time signals
		// from 32, and glibc's SIGRTMIN is 34. Other init programs ignore the signal.
		ask = func() error { return d.d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_RT6, 0) }
	}
	return d.askUntilOff(ask, func() (bool, error) { return isActive(d.d) }, limit)
}

// askUntilOff asks the guest to shut down by calling ask, and waits until the domain is not active or the time limit has passed. ask also
// fails if the guest has just shut down. If ask fails and the domain is still active a second later, askUntilOff returns
// [provider.ErrRefused].
func (s *session) askUntilOff(ask func() error, isActive func() (bool, error), limit time.Duration) error {
	since, refusal := time.Now(), ask()
	for time.Since(since) < limit {
		if on, err := isActive(); err != nil || !on {
			return err
		}
		if refusal != nil && time.Since(since) > time.Second {
			_, inner := explainError(refusal)
			return fmt.Errorf("%w: %w", provider.ErrRefused, inner)
		}
		if err := s.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// destroy stops a domain at once, as a power failure does. It does not remove the definition.
func (d *domain) destroy() error {
	isOff := func() bool {
		on, err := isActive(d.d)
		return isNotFound(err) || err == nil && !on
	}
	if isOff() {
		return nil
	}
	if err := d.beforeChange("end the domain"); err != nil {
		return err
	}
	if d.host.kind == provider.Container {
		// Kill the container's first process, so that the kernel kills the other processes. d.Destroy takes
		// seconds, because libvirt searches cgroups for the processes.
		_ = d.d.SendProcessSignal(1, libvirt.DOMAIN_PROCESS_SIGNAL_KILL, 0)
		for range 50 {
			if isOff() {
				return nil
			}
			if err := d.sleep(20 * time.Millisecond); err != nil {
				return err
			}
		}
	}
	if err := d.d.Destroy(); !isOff() {
		return err
	}
	return nil
}

func (d *domain) undefine() error {
	if err := d.beforeChange("undefine the domain"); err != nil {
		return err
	}
	flags := libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
		libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM
	if d.host.kind == provider.Container || d.host.test {
		flags = 0
	}
	if err := d.d.UndefineFlags(flags); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}
