package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Hypervisor is a simulated hypervisor and the [provider.Provider] for it. It implements all optional
// interfaces of providers.
type Hypervisor struct {
	// The exported fields must not be changed after the first operation.
	Name   string // name in errors
	Kind   provider.Kind
	CPUs   int
	Memory uint64 // total bytes
	Disk   uint64 // free bytes of the pool
	NoKVM  bool   // its virtual machines are emulated

	mu       sync.Mutex
	domains  map[string]*domain           // domains by name
	parts    map[string]map[string]string // parts of each machine, by partsKey: "seed", and "disk" with the image's hash
	networks map[string]*network
	images   map[string]map[string]bool // ids of the clusters that use an image, by the image's hash
	// removedClusters are the ids of clusters that are being removed as a whole.
	removedClusters map[string]bool
	findings        []provider.Finding
	hangs           map[string]error // domains whose system does not shut down, and the hypervisor's refusal to ask it, or nil
	onStep          func(context.Context, Step) error
	onStart         func(provider.Cluster, provider.Spec)
	log             []Step
	boots           int
	cut             int // operations are interrupted before the change with this number, counted from now; 0: no interruption
}

// domain is a machine of a cluster or a foreign domain.
type domain struct {
	cluster   provider.Cluster // owner; the ID is empty for a foreign domain
	spec      provider.Spec
	image     string
	network   string
	copyOf    string // for a clone: the node whose machine was cloned
	detached  bool   // its network was stopped or removed while the domain ran
	boot      int    // number of the last start; 0: the domain is off
	console   string
	heldState provider.State // paused or crashed; empty otherwise
}

type network struct {
	provider.ActualNetwork
	cluster string // id of the owner; empty: foreign
	mode    provider.Mode
}

// Step is a point in an operation, just before a change on the hypervisor. Name is one of
//
//	survey:  read
//	prepare: network, reservations, image (Detail is the image's hash)
//	ensure:  seed, disk, stop, define, reconnect, start, resume
//	remove:  stop, undefine, disk, seed, reservation
//	clean:   network, image
//	power:   shut down, start
type Step struct {
	Op, Node, Name, Detail string
}

func (s Step) String() string {
	return fmt.Sprintf("%s %s %s %s", s.Op, s.Node, s.Name, s.Detail)
}

// New returns an empty hypervisor for virtual machines, with 16 CPUs, 64 GiB of memory and 1 TiB of disk.
func New() *Hypervisor {
	return &Hypervisor{
		Name: "fake", Kind: provider.VM, CPUs: 16, Memory: 64 << 30, Disk: 1 << 40,
		domains: map[string]*domain{}, parts: map[string]map[string]string{},
		networks: map[string]*network{}, images: map[string]map[string]bool{}, removedClusters: map[string]bool{}, hangs: map[string]error{},
	}
}

// OnStep registers f, which is called before each change of every operation. f may block, because no lock is held.
// If f returns an error, the operation returns this error and does not revert its earlier changes, as if the process
// had been killed.
func (h *Hypervisor) OnStep(f func(context.Context, Step) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onStep = f
}

// OnStart registers f, which is called when a machine starts. Tests use f to start a server that replaces
// the guest.
func (h *Hypervisor) OnStart(f func(provider.Cluster, provider.Spec)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onStart = f
}

// Cut interrupts operations before the n-th change from now and before all later changes; 0 ends the interruption.
func (h *Hypervisor) Cut(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = n
}

// Log returns all steps of the operations, in order, except steps of surveys.
func (h *Hypervisor) Log() []Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// Objects describes all objects on the hypervisor, sorted.
func (h *Hypervisor) Objects() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for name := range h.domains {
		all = append(all, "domain "+name)
	}
	for machine, parts := range h.parts {
		for part := range parts {
			all = append(all, part+" "+machine)
		}
	}
	for name, n := range h.networks {
		all = append(all, "network "+name)
		for _, r := range n.Reservations {
			all = append(all, fmt.Sprintf("reservation %s %s %s", r.Node, r.MAC, r.Address))
		}
	}
	for hash := range h.images {
		all = append(all, "image "+hash)
	}
	slices.Sort(all)
	return all
}

// AddDomain adds a foreign domain.
func (h *Hypervisor) AddDomain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boots++
	h.domains[name] = &domain{boot: h.boots}
}

// AddNetwork adds a foreign, active network.
func (h *Hypervisor) AddNetwork(name string, cidr netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.networks[name] = &network{ActualNetwork: provider.ActualNetwork{Active: true, CIDR: cidr}}
}

// AddGuest adds a foreign domain on a network.
func (h *Hypervisor) AddGuest(name, network string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boots++
	h.domains[name] = &domain{boot: h.boots, network: network}
}

// CopyMachine clones a machine with its mark and MAC, as virsh define does if the user changes the name in the
// machine's XML.
func (h *Hypervisor) CopyMachine(name, as string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		h.domains[as] = &domain{cluster: d.cluster, spec: d.spec, image: d.image, network: d.network, copyOf: d.spec.Node}
	}
}

// RemoveDomain removes a domain of any owner. It does not remove the domain's disk and seed.
func (h *Hypervisor) RemoveDomain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.domains, name)
}

// RemoveDisk removes the root disk of a node's machine.
func (h *Hypervisor) RemoveDisk(c provider.Cluster, node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.parts[partsKey(c, node)], "disk")
}

// StopNetwork stops a network and, unless keep is set, removes its definition. Running machines are then
// detached from the network.
func (h *Hypervisor) StopNetwork(name string, keep bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.domains {
		d.detached = d.detached || d.network == name && d.boot != 0
	}
	if n := h.networks[name]; n != nil && keep {
		n.Active = false
	} else {
		delete(h.networks, name)
	}
}

// UndefineNetwork removes the definition of a network, which remains active.
func (h *Hypervisor) UndefineNetwork(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.networks[name]; n != nil {
		n.Transient = true
	}
}

// AddLease adds a DHCP lease to a network.
func (h *Hypervisor) AddLease(name string, l provider.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.networks[name]; n != nil {
		n.Leases = append(n.Leases, l)
	}
}

// PowerOff stops the machine with this name (`cluster-node`) at once, as a power failure does.
func (h *Hypervisor) PowerOff(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.stop()
	}
}

// Hang lets the system of a machine ignore the request to shut down, or the hypervisor refuse it.
func (h *Hypervisor) Hang(name string, refusal error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs[name] = refusal
}

func (d *domain) stop() { d.boot, d.heldState, d.detached = 0, "", false }

// Stop sets the machine with this name to paused or crashed.
func (h *Hypervisor) Stop(name string, how provider.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.heldState = how
	}
}

// State returns the state of the machine with this name.
func (h *Hypervisor) State(name string) provider.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		return d.state()
	}
	return ""
}

// ours reports whether the provider created the domain for the cluster.
func (d *domain) ours(c provider.Cluster) bool { return d.cluster.ID == c.ID && d.copyOf == "" }

func (d *domain) state() provider.State {
	return cmp.Or(d.heldState, map[bool]provider.State{true: provider.Off, false: provider.Running}[d.boot == 0])
}

// Boot returns the number of the machine's last start, which is different for each start; 0 if the machine is off.
func (h *Hypervisor) Boot(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		return d.boot
	}
	return 0
}

// Spec returns the spec that the machine with this name was last defined from.
func (h *Hypervisor) Spec(name string) (provider.Spec, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.domains[name]
	if d == nil || !d.ours(d.cluster) || d.cluster.ID == "" {
		return provider.Spec{}, false
	}
	return d.spec, true
}

// Print appends text to a machine's console log.
func (h *Hypervisor) Print(name, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.console += text
	}
}

// SetFindings sets the result of Examine.
func (h *Hypervisor) SetFindings(findings ...provider.Finding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.findings = findings
}

// runStep records the step, calls onStep without the lock, and makes the change by calling change with the lock held.
// If the operation is interrupted or onStep returns an error, it does not call change, and returns an error.
func (h *Hypervisor) runStep(ctx context.Context, s Step, change func() error) error {
	h.mu.Lock()
	onStep, cut := h.onStep, false
	if s.Op != "survey" {
		h.log = append(h.log, s)
		if h.cut > 0 {
			h.cut--
			cut = h.cut == 0
			if cut {
				h.cut = 1 // also interrupt all later changes, until Cut(0)
			}
		}
	}
	h.mu.Unlock()
	err := ctx.Err()
	if err == nil && cut {
		err = fmt.Errorf("cut off")
	}
	if err == nil && onStep != nil {
		err = onStep(ctx, s)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		h.mu.Lock()
		err = change()
		h.mu.Unlock()
	}
	if err != nil {
		return h.fail(s, err)
	}
	return nil
}

func (h *Hypervisor) fail(s Step, err error) error {
	e := &provider.Error{Hypervisor: h.Name, Node: s.Node, Op: s.Op + ": " + s.Name, Err: err}
	switch {
	case errors.Is(err, provider.ErrForeign), errors.Is(err, provider.ErrClash):
		e.Fix = "choose another name or range"
	case errors.Is(err, provider.ErrFull):
		e.Fix = "make room"
	case errors.Is(err, provider.ErrNoDisk):
		e.Fix = "restore the disk"
	}
	return e
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
