package provision

import (
	"net/netip"
)

// Inventory is the observed state of one hypervisor.
type Inventory struct {
	Kind       Kind
	Host       string // identifies the host; hypervisors of one host have the same; empty: unknown
	Emulated   bool   // virtual machines run without KVM, many times slower
	FreeMemory uint64 // bytes available to new machines
	FreeDisk   uint64 // bytes left in the pool
	CPUs       int
	Machines   []Actual       // of this cluster, sorted by name, with the incomplete ones
	Foreign    []string       // names of other domains
	Copies     []Copy         // the foreign domains that carry the mark of one of this cluster's machines
	Ranges     []Range        // of the networks other than the desired one
	Network    *ActualNetwork // the network with the desired name; nil if there is none
	Images     []string       // hashes of the completely uploaded images
}

// Kind is what a hypervisor runs.
type Kind string

const (
	VM        Kind = "vm"
	Container Kind = "container"
)

// Actual is the observed state of one machine of the cluster.
type Actual struct {
	Node    string
	Role    string
	MAC     string
	Address netip.Addr // the reserved address; invalid if there is none
	VCPUs   int
	Memory  uint64
	Image   string // hash of the image that it was created from
	State   State
	// Definition is the digest of the spec that the machine was defined from, see Spec.Definition. If it
	// differs from the digest of the desired state, the machine has to be restarted.
	Definition string
	// Detached reports that the machine runs with its interface on no bridge: its network is not active, or
	// was stopped and started after the machine had been connected.
	Detached bool
}

// Copy is a domain with the mark of one of the cluster's machines and another UUID: a clone that a user made
// of the machine. nixbench never changes or removes it.
type Copy struct {
	Domain string
	Node   string // the node whose machine was cloned
	MAC    string
}

// Range is the address range of a libvirt network.
type Range struct {
	Network string
	CIDR    netip.Prefix
	Active  bool
}

// State is the run state of a machine.
type State string

const (
	Running    State = "running"
	Off        State = "off"
	Paused     State = "paused"
	Crashed    State = "crashed" // the guest crashed, and its memory is preserved
	Incomplete State = "half"    // its creation or removal was interrupted
)

// ActualNetwork is the observed state of a libvirt network.
type ActualNetwork struct {
	Ours         bool   // created by nixbench for this cluster
	Owner        string // the other cluster that nixbench created it for, if any
	Active       bool
	Transient    bool // active but not defined: it disappears when it stops
	CIDR         netip.Prefix
	Reservations []Reservation // all reservations; Node is set for this cluster's
	Leases       []Lease
}

// Lease is an address that the network's DHCP server has leased.
type Lease struct {
	MAC     string
	Address netip.Addr
}
