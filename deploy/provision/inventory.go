package provision

import (
	"net/netip"
)

// Inventory is a hypervisor as it was found.
type Inventory struct {
	Kind       Kind
	Host       string // the same for all hypervisors of one host; empty: not known
	Emulated   bool   // virtual machines run without KVM, many times slower
	FreeMemory uint64 // bytes that machines could still get
	FreeDisk   uint64 // bytes left in the pool
	CPUs       int
	Machines   []Actual       // ours, of this cluster, in order of their names; halves too
	Foreign    []string       // names of other domains
	Copies     []Copy         // those of them that carry the mark of a machine of this cluster
	Ranges     []Range        // of the networks with other names
	Network    *ActualNetwork // nil if there is none of that name
	Images     []string       // hashes of those that are complete
}

// Kind is what a hypervisor runs.
type Kind string

const (
	VM        Kind = "vm"
	Container Kind = "container"
)

// Actual is a machine of ours.
type Actual struct {
	Node    string
	Role    string
	MAC     string
	Address netip.Addr // reserved for it; invalid if none is
	VCPUs   int
	Memory  uint64
	Image   string // hash of what it was made from
	State   State
	// Definition is the mark of the wish that the machine was defined from, see
	// Spec.Definition. Where it differs from that of a wish, the machine has to be restarted.
	Definition string
	// Detached tells that the machine runs and that its network is not active, or has been stopped
	// and started since the machine was connected to it: its interface is on no bridge.
	Detached bool
}

// Copy is a domain that carries the mark of a machine of the cluster and is not that machine, since
// it has another UUID: a clone that somebody has made of it. It is never changed or removed.
type Copy struct {
	Domain string
	Node   string // whose machine it is a copy of
	MAC    string
}

// Range is the address range of a libvirt network.
type Range struct {
	Network string
	CIDR    netip.Prefix
	Active  bool
}

// State of a machine.
type State string

const (
	Running    State = "running"
	Off        State = "off"
	Paused     State = "paused"
	Crashed    State = "crashed" // and kept as it was then
	Incomplete State = "half"    // it was never completely made, or not completely removed
)

// ActualNetwork is a libvirt network as it was found.
type ActualNetwork struct {
	Ours         bool   // of this cluster
	Owner        string // the cluster that nixbench made it for, where it is another one
	Active       bool
	Transient    bool // it is active and not defined: when it stops, it is gone
	CIDR         netip.Prefix
	Reservations []Reservation // all, with Node where they are ours
	Leases       []Lease
}

// Lease is an address that DHCP has given out.
type Lease struct {
	MAC     string
	Address netip.Addr
}
