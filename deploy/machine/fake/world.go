package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// World is what exists on a simulated hypervisor. Its methods observe and change it without the provider.
type World struct {
	mu       sync.Mutex
	domains  map[string]*domain // domains by name
	parts    map[string]string  // the parts of machines, by "seed" or "disk" and machineKey; the value is the hash of a disk's image
	networks map[string]*network
	images   map[string]map[string]bool // hash of an image → ids of the clusters that use the image
	hangs    map[string]error           // domain that does not shut down → the hypervisor's refusal to ask it; nil: it ignores the request
	onStep   func(context.Context, Step) error
	onStart  func(provider.Cluster, provider.Spec)
	log      []Step
	boots    int
	cut      int // operations are interrupted before the change with this number, counted from now; 0: no interruption
}

type domain struct {
	cluster   provider.Cluster // owner; the ID is empty for a foreign domain
	spec      provider.Spec
	image     string
	network   string
	boot      int // number of the last start; 0: the domain is off
	console   string
	heldState provider.State // paused or crashed; empty otherwise
}

type network struct {
	provider.ActualNetwork
	cluster string // id of the owner; empty: foreign
}

// Step is a point in an operation, just before a change on the hypervisor. Name is one of
//
//	survey:  read
//	prepare: network, reservations, image
//	ensure:  seed, disk, stop, define, start, resume
//	remove:  stop, undefine, disk, seed
//	clean:   network, image
//	power:   shut down, start
type Step struct {
	Op, Node, Name string
}

func (s Step) String() string { return s.Op + " " + s.Node + " " + s.Name }

// do calls f with the lock held.
func (w *World) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// OnStep registers f, which every operation calls before each change. f may block, because the caller holds no lock. If f returns an
// error, the operation stops and returns this error. It does not revert its earlier changes, as if the process had been killed.
func (w *World) OnStep(f func(context.Context, Step) error) { w.do(func() { w.onStep = f }) }

// OnStart registers f, which is called when a machine starts. In f, a test can start an SSH server that replaces the guest.
func (w *World) OnStart(f func(provider.Cluster, provider.Spec)) { w.do(func() { w.onStart = f }) }

// Cut interrupts operations before the n-th change from now, and before all later changes. Cut(0) ends the interruption.
func (w *World) Cut(n int) { w.do(func() { w.cut = n }) }

func (w *World) Log() (log []Step) {
	w.do(func() { log = slices.Clone(w.log) })
	return log
}

func (w *World) Objects() (all []string) {
	w.do(func() {
		for name := range w.domains {
			all = append(all, "domain "+name)
		}
		all = append(all, slices.Collect(maps.Keys(w.parts))...)
		for name, n := range w.networks {
			all = append(all, "network "+name)
			for _, r := range n.Reservations {
				all = append(all, fmt.Sprintf("reservation %s %s %s", r.Node, r.MAC, r.Address))
			}
		}
		for hash := range w.images {
			all = append(all, "image "+hash)
		}
	})
	slices.Sort(all)
	return all
}

func (w *World) AddDomain(name string) { w.AddGuest(name, "") }

func (w *World) AddGuest(name, network string) {
	w.do(func() {
		w.boots++
		w.domains[name] = &domain{boot: w.boots, network: network}
	})
}

func (w *World) AddNetwork(name string, cidr netip.Prefix) {
	w.do(func() { w.networks[name] = &network{ActualNetwork: provider.ActualNetwork{Active: true, CIDR: cidr}} })
}

// withDomain calls f with the domain of this name, which is `cluster-node` for a machine. If there is no such domain, it does nothing.
func (w *World) withDomain(name string, f func(*domain)) {
	w.do(func() {
		if d := w.domains[name]; d != nil {
			f(d)
		}
	})
}

// CopyMachine clones a machine, as virsh define does if the user changes the name in the machine's XML. The clone belongs to no cluster.
func (w *World) CopyMachine(name, as string) {
	w.withDomain(name, func(d *domain) { w.domains[as] = &domain{spec: d.spec, network: d.network} })
}

func (w *World) RemoveDomain(name string) { w.do(func() { delete(w.domains, name) }) }

func (w *World) RemoveDisk(c provider.Cluster, node string) {
	w.do(func() { delete(w.parts, "disk "+machineKey(c, node)) })
}

// StopNetwork stops a network and, unless keep is set, removes its definition.
func (w *World) StopNetwork(name string, keep bool) {
	w.do(func() {
		if n := w.networks[name]; n != nil && keep {
			n.Active = false
		} else {
			delete(w.networks, name)
		}
	})
}

func (w *World) AddLease(name string, l provider.Lease) {
	w.do(func() { w.networks[name].Leases = append(w.networks[name].Leases, l) })
}

func (w *World) PowerOff(name string) { w.withDomain(name, (*domain).stop) }

func (w *World) Pause(name string) {
	w.withDomain(name, func(d *domain) { d.heldState = provider.Paused })
}

func (w *World) Crash(name string) {
	w.withDomain(name, func(d *domain) { d.heldState = provider.Crashed })
}

// Hang makes the machine with this name not shut down. If refusal is nil, the system of the machine ignores the request
// to shut down. Otherwise the hypervisor refuses the request with this error.
func (w *World) Hang(name string, refusal error) { w.do(func() { w.hangs[name] = refusal }) }

func (w *World) Print(name, text string) { w.withDomain(name, func(d *domain) { d.console += text }) }

func (w *World) State(name string) (state provider.State) {
	w.withDomain(name, func(d *domain) { state = d.state() })
	return state
}

// Boot returns the number of the machine's last start. Each start has another number. If the machine is off, the result is 0.
func (w *World) Boot(name string) (boot int) {
	w.withDomain(name, func(d *domain) { boot = d.boot })
	return boot
}

func (d *domain) stop() { d.boot, d.heldState = 0, "" }

func (d *domain) isOwnedBy(c provider.Cluster) bool { return d.cluster.ID == c.ID }

func (d *domain) state() provider.State {
	return cmp.Or(d.heldState, map[bool]provider.State{true: provider.Off, false: provider.Running}[d.boot == 0])
}

// machineKey returns the end of the keys of a machine's disk and seed in World.parts.
func machineKey(c provider.Cluster, node string) string { return c.ID + " " + node }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
