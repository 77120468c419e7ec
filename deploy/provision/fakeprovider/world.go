package fakeprovider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/provision"
)

// Hypervisor is one hypervisor and the [provision.Provider] for it. It can do all that
// a provider may: discover, show consoles, clean, and examine itself.
type Hypervisor struct {
	// These may be changed before the first use.
	Name   string // in errors
	Kind   provision.Kind
	CPUs   int
	Memory uint64 // bytes in all
	Disk   uint64

	mu       sync.Mutex
	domains  map[string]*domain           // by name
	parts    map[string]map[string]string // what belongs to machines: by cluster's id and node, "seed" and "disk" with the image's hash
	networks map[string]*network
	images   map[string]map[string]bool // by hash, the ids of the clusters that use it
	findings []provision.Finding
	onStep   func(context.Context, Step) error
	onStart  func(provision.Cluster, provision.Spec)
	log      []Step
	boots    int
	cut      int // the effect before which operations are cut off
}

// domain is a machine, ours or not.
type domain struct {
	cluster   provision.Cluster // without an id: foreign
	spec      provision.Spec
	image     string
	network   string
	copyOf    string // the node whose mark it carries without being its machine
	detached  bool   // its network was stopped or removed while it ran
	boot      int    // which start of the hypervisor's it runs since; 0: off
	console   string
	heldState provision.State // although it was started: paused or crashed
}

type network struct {
	provision.ActualNetwork
	cluster string // id
	mode    provision.Mode
}

// Step is a point of an operation: just before its effect. Name is one of
//
//	survey:  read
//	prepare: network, reservations, image (Detail is its hash)
//	ensure:  seed, disk, stop, define, reconnect, start, resume
//	remove:  stop, undefine, disk, seed, reservation
//	clean:   network, image
type Step struct {
	Op, Node, Name, Detail string
}

func (s Step) String() string {
	return fmt.Sprintf("%s %s %s %s", s.Op, s.Node, s.Name, s.Detail)
}

// New is an empty hypervisor for virtual machines, with 16 processors, 64 GiB of
// memory and a TiB of disk.
func New() *Hypervisor {
	return &Hypervisor{
		Name: "fake", Kind: provision.VM, CPUs: 16, Memory: 64 << 30, Disk: 1 << 40,
		domains: map[string]*domain{}, parts: map[string]map[string]string{},
		networks: map[string]*network{}, images: map[string]map[string]bool{},
	}
}

// OnStep has f called before each effect of every operation, without any lock held: it may
// block. If it fails, the operation ends there with its error, and what was done so far
// stays, as if it had been killed.
func (h *Hypervisor) OnStep(f func(context.Context, Step) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onStep = f
}

// OnStart has f called when a machine starts: to bring up what answers in its place.
func (h *Hypervisor) OnStart(f func(provision.Cluster, provision.Spec)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onStart = f
}

// Cut has operations end before their n-th effect from now; 0 takes that back.
func (h *Hypervisor) Cut(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = n
}

// Log is every step that was begun, in order.
func (h *Hypervisor) Log() []Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// Things is all that is on the hypervisor, in words, sorted.
func (h *Hypervisor) Things() []string {
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

// AddDomain puts somebody else's machine there.
func (h *Hypervisor) AddDomain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boots++
	h.domains[name] = &domain{boot: h.boots}
}

// AddNetwork puts somebody else's network there, which is active.
func (h *Hypervisor) AddNetwork(name string, cidr netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.networks[name] = &network{ActualNetwork: provision.ActualNetwork{Active: true, CIDR: cidr}}
}

// AddGuest puts somebody else's machine onto a network.
func (h *Hypervisor) AddGuest(name, network string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boots++
	h.domains[name] = &domain{boot: h.boots, network: network}
}

// CopyMachine makes a copy of a machine, with its mark and its MAC, as virsh define does with its XML
// under another name.
func (h *Hypervisor) CopyMachine(name, as string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		h.domains[as] = &domain{cluster: d.cluster, spec: d.spec, image: d.image, network: d.network, copyOf: d.spec.Node}
	}
}

// RemoveDomain removes a domain of whoever's, and nothing else of it.
func (h *Hypervisor) RemoveDomain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.domains, name)
}

// StopNetwork stops a network and, unless it is kept, removes its definition, too. Machines that run are
// not connected to anything then.
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

// UndefineNetwork removes the definition of a network that goes on running.
func (h *Hypervisor) UndefineNetwork(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.networks[name]; n != nil {
		n.Transient = true
	}
}

// AddLease has a network give out an address.
func (h *Hypervisor) AddLease(name string, l provision.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.networks[name]; n != nil {
		n.Leases = append(n.Leases, l)
	}
}

// PowerOff ends the machine with this name (`cluster-node`), as a power cut does.
func (h *Hypervisor) PowerOff(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.stop()
	}
}

func (d *domain) stop() { d.boot, d.heldState, d.detached = 0, "", false }

// Stop has the machine with this name be paused, or crashed.
func (h *Hypervisor) Stop(name string, how provision.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.heldState = how
	}
}

// State of the machine with this name.
func (h *Hypervisor) State(name string) provision.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		return d.state()
	}
	return ""
}

// ours: it is a machine that the provider has made for the cluster.
func (d *domain) ours(c provision.Cluster) bool { return d.cluster.ID == c.ID && d.copyOf == "" }

func (d *domain) state() provision.State {
	return cmp.Or(d.heldState, map[bool]provision.State{true: provision.Off, false: provision.Running}[d.boot == 0])
}

// Boot tells one start of a machine from another; 0 if it does not run.
func (h *Hypervisor) Boot(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		return d.boot
	}
	return 0
}

// Spec is what the machine with this name was last defined from.
func (h *Hypervisor) Spec(name string) (provision.Spec, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.domains[name]
	if d == nil || !d.ours(d.cluster) || d.cluster.ID == "" {
		return provision.Spec{}, false
	}
	return d.spec, true
}

// Print adds text to a machine's console.
func (h *Hypervisor) Print(name, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.domains[name]; d != nil {
		d.console += text
	}
}

// Find sets what Examine tells.
func (h *Hypervisor) SetFindings(findings ...provision.Finding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.findings = findings
}

// at is reached before each effect; the effect itself is run with the lock held.
func (h *Hypervisor) runStep(ctx context.Context, s Step, effect func() error) error {
	h.mu.Lock()
	onStep, cut := h.onStep, false
	if s.Op != "survey" {
		h.log = append(h.log, s)
		if h.cut > 0 {
			h.cut--
			cut = h.cut == 0
			if cut {
				h.cut = 1 // and everything after it, until it is taken back
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
		err = effect()
		h.mu.Unlock()
	}
	if err != nil {
		return h.fail(s, err)
	}
	return nil
}

func (h *Hypervisor) fail(s Step, err error) error {
	e := &provision.Error{Hypervisor: h.Name, Node: s.Node, Op: s.Op + ": " + s.Name, Err: err}
	switch {
	case errors.Is(err, provision.ErrForeign), errors.Is(err, provision.ErrClash):
		e.Fix = "choose another name or range"
	case errors.Is(err, provision.ErrFull):
		e.Fix = "make room"
	}
	return e
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
