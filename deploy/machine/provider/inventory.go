package provider

import (
	"net/netip"
)

type Inventory struct {
	Kind       Kind
	Host       string         // identifies the host; two hypervisors with the same value are on the same host; empty: unknown
	Emulated   bool           // virtual machines run without KVM, many times slower
	FreeMemory uint64         // bytes available to new machines
	Machines   []Actual       // complete and incomplete machines of this cluster, sorted by node
	Foreign    []string       // names of the domains that are not machines of this cluster, such as clones of its machines
	Network    *ActualNetwork // the network with the desired name; nil if there is none
}

type Kind string

const (
	VM        Kind = "vm"
	Container Kind = "container"
)

type Actual struct {
	Node    string
	Role    string
	MAC     string
	Address netip.Addr // the reserved address; the zero Addr if there is none
	VCPUs   int
	Memory  uint64 // bytes
	Image   string // hash of the image that the machine was created from
	State   State
	HasDisk bool // the root disk exists; set only for an incomplete machine
	// Process identifies the process of an active machine on the hypervisor's computer: the process id of a container, in the PID namespace
	// of the hypervisor, or an argument of the process that only this virtual machine has. It is empty if it is unknown.
	Process string
	// Definition is the digest of the spec that the machine was defined from, see Spec.Definition. If it
	// differs from the digest of the desired state, the machine has to be restarted. It is empty if the provider does not define machines.
	Definition string
}

type State string

const (
	Running    State = "running"
	Off        State = "off"
	Paused     State = "paused"
	Crashed    State = "crashed" // the guest crashed, and its memory is preserved
	Incomplete State = "half"    // the domain or the root disk is missing, for instance after an interrupted creation
)

type ActualNetwork struct {
	Ours         bool // nixbench created the network for this cluster
	Active       bool
	CIDR         netip.Prefix
	Reservations []Reservation // all reservations; Node is set only in reservations of this cluster
	Leases       []Lease
}

type Lease struct {
	MAC     string
	Address netip.Addr
}
