package machinetest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Setup describes the provider to test.
type Setup struct {
	// Open returns a hypervisor for one test, without objects of any cluster.
	Open func(t *testing.T) *Host
	// Images returns two images to boot from.
	Images func(t *testing.T) [2]provider.Image
	// Networks are two address ranges for machines that do not overlap. The zero value selects
	// 192.168.240.0/24 and 192.168.241.0/24.
	Networks [2]netip.Prefix
	// Memory is the memory of a machine in bytes. A machine must also start with 1.5 times as much. 0: 64 MiB.
	Memory uint64
	Disk   uint64 // size of a machine's root disk; 0: the image's size
	Init   string
	// Identity returns a machine's identity, for providers that need more than its name.
	Identity func(node string) provider.Identity
	// Timeout limits one operation; 0: a minute.
	Timeout time.Duration
	// Cuts is the maximum number of interruptions of an operation, for slow hypervisors. 0: no limit.
	Cuts  int
	Lacks Lacks
}

// Lacks are the functions that a hypervisor does not support. The suite does not test them.
type Lacks struct {
	Reservations bool // it cannot change the reservations of a network
	Ports        bool // it cannot list the ports of a network
	Transient    bool // a network that is undefined while it is active stops
}

// Provider is a provider with the optional interfaces that the suite tests.
type Provider interface {
	provider.Provider
	provider.Checker
	provider.Cleaner
	provider.ClusterRemover
	provider.Power
	provider.Observer
}

// Host is a hypervisor with functions that change it without the provider.
type Host struct {
	Provider Provider
	// Objects describes all objects on the hypervisor, sorted: domains, networks, reservations, volumes,
	// files.
	Objects func(t *testing.T) []string
	// AddDomain adds a foreign machine, AddNetwork a foreign active network.
	AddDomain  func(t *testing.T, name string)
	AddNetwork func(t *testing.T, name string, cidr netip.Prefix)
	// AddGuest adds a foreign machine on a network, RemoveDomain removes a domain, and CopyMachine clones a
	// machine of the cluster, with its mark, its MAC and another name.
	AddGuest     func(t *testing.T, name, network string)
	RemoveDomain func(t *testing.T, name string)
	CopyMachine  func(t *testing.T, name, as string)
	// RemoveDisk removes the root disk of a node's machine.
	RemoveDisk func(t *testing.T, c provider.Cluster, node string)
	// StopNetwork stops a network and, unless keep is set, removes its definition. UndefineNetwork removes
	// the definition of a network that continues to run.
	StopNetwork     func(t *testing.T, name string, keep bool)
	UndefineNetwork func(t *testing.T, name string)
	// AddStalePort adds a port of a node's machine to a network without connecting the machine. Such a port
	// remains if libvirtd is killed while it starts the machine. nil if the hypervisor has no ports.
	AddStalePort func(t *testing.T, network string, c provider.Cluster, node string)
	// Boot returns a text that is different for each start of a domain; empty if the domain is off.
	Boot func(t *testing.T, name string) string
	// PowerOff stops a domain without a shutdown of the guest.
	PowerOff func(t *testing.T, name string)
	// Pause pauses a domain until it is resumed.
	Pause func(t *testing.T, name string)
	// Cut interrupts operations of the provider before the n-th change from now, as if the process had been
	// killed; 0 ends the interruption.
	Cut func(n int)
}

// suite contains the hypervisor of one test, and the images, cluster and network that the test uses.
type suite struct {
	*testing.T
	Setup
	*Host
	images  [2]provider.Image
	cluster provider.Cluster
	net     provider.Network
}

func (s Setup) open(t *testing.T) *suite {
	t.Helper()
	if s.Networks == [2]netip.Prefix{} {
		s.Networks = [2]netip.Prefix{netip.MustParsePrefix("192.168.240.0/24"), netip.MustParsePrefix("192.168.241.0/24")}
	}
	if s.Memory == 0 {
		s.Memory = 64 << 20
	}
	if s.Timeout == 0 {
		s.Timeout = time.Minute
	}
	return &suite{
		T: t, Setup: s, Host: s.Open(t), images: s.Images(t),
		cluster: provider.Cluster{Name: "suite", ID: "00112233445566aa"},
		net:     provider.Network{Name: "nbsuite", Mode: provider.Isolated, CIDR: s.Networks[0], Domain: "internal"},
	}
}

// spec returns the spec of a node with index i, which determines the MAC and the address.
func (b *suite) spec(node string, i int) provider.Spec {
	s := provider.Spec{
		Node: node, Role: "worker", Index: i, MAC: fmt.Sprintf("52:54:00:aa:00:%02x", i), Address: b.address(i),
		VCPUs: 1, Memory: b.Memory, Disk: b.Disk, Firmware: provider.BIOS, Init: b.Init, Image: b.images[0], NewDisks: true,
		Identity: provider.Identity{Method: provider.Auto, Node: fmt.Appendf(nil, "{\"name\":%q}\n", node)},
	}
	if b.Identity != nil {
		s.Identity = b.Identity(node)
	}
	return s
}

func (b *suite) address(i int) netip.Addr {
	a := b.Networks[0].Masked().Addr()
	for range 9 + i {
		a = a.Next()
	}
	return a
}

func (b *suite) hostSetup(specs ...provider.Spec) provider.HostSetup {
	g := provider.HostSetup{Network: b.net, Images: b.images[:1]}
	for _, s := range specs {
		if b.net.Mode.Ours() && !b.Lacks.Reservations {
			g.Reservations = append(g.Reservations, provider.Reservation{Node: s.Node, MAC: s.MAC, Address: s.Address})
		}
	}
	return g
}

// runOperation runs one operation. It fails the test if the operation takes longer than Timeout.
func (b *suite) runOperation(f func(context.Context) error) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.Timeout)
	defer cancel()
	err := f(ctx)
	if ctx.Err() != nil {
		b.Fatalf("it took more than %s: %v", b.Timeout, err)
	}
	return err
}

func (b *suite) requireNoError(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *suite) prepare(specs ...provider.Spec) {
	b.Helper()
	b.requireNoError("Prepare", b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup(specs...)) }))
}

func (b *suite) tryEnsure(s provider.Spec) error {
	b.Helper()
	return b.runOperation(func(ctx context.Context) error { return b.Provider.Ensure(ctx, b.cluster, b.net, s) })
}

func (b *suite) ensure(s provider.Spec) {
	b.Helper()
	b.requireNoError("Ensure "+s.Node, b.tryEnsure(s))
}

func (b *suite) tryRemove(node string) error {
	b.Helper()
	return b.runOperation(func(ctx context.Context) error { return b.Provider.Remove(ctx, b.cluster, node) })
}

func (b *suite) remove(node string) {
	b.Helper()
	b.requireNoError("Remove "+node, b.tryRemove(node))
}

func (b *suite) clean() {
	b.Helper()
	b.requireNoError("Clean", b.runOperation(func(ctx context.Context) error {
		_, err := b.Provider.Clean(ctx, b.cluster)
		return err
	}))
}

// remaining describes the objects that Clean keeps.
func (b *suite) remaining() []string {
	b.Helper()
	var out []string
	b.requireNoError("Clean", b.runOperation(func(ctx context.Context) error {
		left, err := b.Provider.Clean(ctx, b.cluster)
		for _, l := range left {
			if l.Fix == "" {
				b.Errorf("%s: it has no fix", l.What)
			}
			out = append(out, l.What+": "+l.Why)
		}
		return err
	}))
	return out
}

func (b *suite) survey() provider.Inventory {
	b.Helper()
	var inventory provider.Inventory
	b.requireNoError("Survey", b.runOperation(func(ctx context.Context) (err error) {
		inventory, err = b.Provider.Survey(ctx, b.cluster, b.net)
		return err
	}))
	return inventory
}

// machine returns the observed machine of a node; its State is empty if the node has no machine.
func (b *suite) machine(node string) provider.Actual {
	b.Helper()
	for _, m := range b.survey().Machines {
		if m.Node == node {
			return m
		}
	}
	return provider.Actual{Node: node}
}

func (b *suite) domain(node string) string { return b.cluster.Name + "-" + node }
