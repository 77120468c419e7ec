package provisiontest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/provision"
)

// Setup says what to test.
type Setup struct {
	// Open gives a hypervisor for one test, on which there is nothing of any cluster.
	Open func(t *testing.T) *Host
	// Images are two to boot from.
	Images func(t *testing.T) [2]provision.Image
	// Networks are ranges that machines may have: two that do not overlap. The zero value
	// is 192.168.240.0/24 and 192.168.241.0/24.
	Networks [2]netip.Prefix
	// Memory of a machine; it must also start with half as much again. 0: 64 MiB.
	Memory uint64
	Disk   uint64 // of a machine's root; 0: as large as the image
	Init   string
	// Identity of a machine, where more than a name is needed.
	Identity func(node string) provision.Identity
	// Timeout of one operation; 0: a minute.
	Timeout time.Duration
	// Cuts bounds how many places an operation is cut off at, where that takes long. 0: all.
	Cuts  int
	Lacks Lacks
}

// Lacks is what a hypervisor cannot do, so that it is not asked for.
type Lacks struct {
	Reservations bool // networks cannot be changed while they stand
	Ports        bool // it does not know what is connected to a network
	Transient    bool // a network that is undefined while it runs does not run on
}

// Host is a hypervisor, and ways to it behind the provider's back.
type Host struct {
	Provider provision.Provider
	// Things is all that is on it, in words, sorted: domains, networks, reservations, volumes, files.
	Things func(t *testing.T) []string
	// AddDomain puts somebody else's machine there, AddNetwork somebody else's active network.
	AddDomain  func(t *testing.T, name string)
	AddNetwork func(t *testing.T, name string, cidr netip.Prefix)
	// AddGuest puts somebody else's machine onto a network, RemoveDomain removes a domain, and CopyMachine
	// makes a copy of one of ours, with its mark, its MAC and another name.
	AddGuest     func(t *testing.T, name, network string)
	RemoveDomain func(t *testing.T, name string)
	CopyMachine  func(t *testing.T, name, as string)
	// StopNetwork stops a network and removes its definition unless that is kept. UndefineNetwork
	// removes the definition of one that runs on.
	StopNetwork     func(t *testing.T, name string, keep bool)
	UndefineNetwork func(t *testing.T, name string)
	// AddStalePort has a network believe that a node's machine is on it that is not, as a libvirtd does that was
	// killed while it started one; nil where there is no such thing.
	AddStalePort func(t *testing.T, network string, c provision.Cluster, node string)
	// Boot tells one start of a domain from another; empty if it does not run.
	Boot func(t *testing.T, name string) string
	// PowerOff ends a domain without asking it.
	PowerOff func(t *testing.T, name string)
	// Pause has a domain do nothing until it is resumed.
	Pause func(t *testing.T, name string)
	// Cut has the provider end operations before their n-th effect from now, as if the process
	// had been killed there; 0 takes that back.
	Cut func(n int)
}

// bench is one test's hypervisor with what the tests say to it.
type suite struct {
	*testing.T
	Setup
	*Host
	images  [2]provision.Image
	cluster provision.Cluster
	net     provision.Network
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
		cluster: provision.Cluster{Name: "suite", ID: "00112233445566aa"},
		net:     provision.Network{Name: "nbsuite", Mode: provision.Isolated, CIDR: s.Networks[0], Domain: "internal"},
	}
}

// spec is a wish for a node whose number is i.
func (b *suite) spec(node string, i int) provision.Spec {
	s := provision.Spec{
		Node: node, Role: "worker", Index: i, MAC: fmt.Sprintf("52:54:00:aa:00:%02x", i), Address: b.address(i),
		VCPUs: 1, Memory: b.Memory, Disk: b.Disk, Firmware: provision.BIOS, Init: b.Init, Image: b.images[0],
		Identity: provision.Identity{Method: provision.Auto, Node: fmt.Appendf(nil, "{\"name\":%q}\n", node)},
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

func (b *suite) hostSetup(specs ...provision.Spec) provision.HostSetup {
	g := provision.HostSetup{Network: b.net, Images: b.images[:1]}
	for _, s := range specs {
		if b.net.Mode.Ours() && !b.Lacks.Reservations {
			g.Reservations = append(g.Reservations, provision.Reservation{Node: s.Node, MAC: s.MAC, Address: s.Address})
		}
	}
	return g
}

// do runs one operation; it fails the test if that takes too long.
func (b *suite) do(f func(context.Context) error) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.Timeout)
	defer cancel()
	err := f(ctx)
	if ctx.Err() != nil {
		b.Fatalf("it took more than %s: %v", b.Timeout, err)
	}
	return err
}

func (b *suite) must(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *suite) prepare(specs ...provision.Spec) {
	b.Helper()
	b.must("Prepare", b.do(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup(specs...)) }))
}

func (b *suite) tryEnsure(s provision.Spec) error {
	b.Helper()
	return b.do(func(ctx context.Context) error { return b.Provider.Ensure(ctx, b.cluster, b.net, s) })
}

func (b *suite) ensure(s provision.Spec) {
	b.Helper()
	b.must("Ensure "+s.Node, b.tryEnsure(s))
}

func (b *suite) tryRemove(node string) error {
	b.Helper()
	return b.do(func(ctx context.Context) error { return b.Provider.Remove(ctx, b.cluster, node) })
}

func (b *suite) remove(node string) {
	b.Helper()
	b.must("Remove "+node, b.tryRemove(node))
}

func (b *suite) clean() {
	b.Helper()
	if c, ok := b.Provider.(provision.Cleaner); ok {
		b.must("Clean", b.do(func(ctx context.Context) error {
			_, err := c.Clean(ctx, b.cluster)
			return err
		}))
	}
}

// left is what cleaning leaves, in words.
func (b *suite) remaining() []string {
	b.Helper()
	c, ok := b.Provider.(provision.Cleaner)
	if !ok {
		return nil
	}
	var out []string
	b.must("Clean", b.do(func(ctx context.Context) error {
		left, err := c.Clean(ctx, b.cluster)
		for _, l := range left {
			if l.Fix == "" {
				b.Errorf("%s: it knows no way out", l.What)
			}
			out = append(out, l.What+": "+l.Why)
		}
		return err
	}))
	return out
}

func (b *suite) survey() provision.Inventory {
	b.Helper()
	var site provision.Inventory
	b.must("Survey", b.do(func(ctx context.Context) (err error) {
		site, err = b.Provider.Survey(ctx, b.cluster, b.net)
		return err
	}))
	return site
}

// found is the machine in a survey, with State empty if it is not there.
func (b *suite) machine(node string) provision.Actual {
	b.Helper()
	for _, m := range b.survey().Machines {
		if m.Node == node {
			return m
		}
	}
	return provision.Actual{Node: node}
}

func (b *suite) domain(node string) string { return b.cluster.Name + "-" + node }
