package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Setup describes the provider to test.
type Setup struct {
	// Open returns a hypervisor for one test, without objects of any cluster.
	Open func(t *testing.T) Host
	// Images are two images to boot from.
	Images [2]provider.Image
	// Identity returns a machine's identity, for providers that need more than its name.
	Identity func(node string) provider.Identity
	Lacks    Lacks
}

// Lacks are the functions that a hypervisor does not support. The suite does not test them.
type Lacks struct {
	Reservations bool // it cannot change the reservations of a network
}

// Host is a provider, with functions that observe and change its hypervisor without the provider.
type Host interface {
	provider.Provider

	// Objects describes all objects on the hypervisor, sorted: domains, networks, volumes, files.
	Objects() []string
	// Boot returns a number that is different for each start of a domain; 0 if the domain is off.
	Boot(name string) int
	// AddDomain adds a foreign machine, and AddGuest one that is on a network. AddNetwork adds a foreign active network.
	AddDomain(name string)
	AddGuest(name, network string)
	AddNetwork(name string, cidr netip.Prefix)
	// CopyMachine clones a machine of the cluster. The clone has the mark and the MAC of the machine, and another name, which the
	// argument as is.
	CopyMachine(name, as string)
	RemoveDomain(name string)
	RemoveDisk(c provider.Cluster, node string)
	// StopNetwork stops a network and, unless keep is set, removes its definition.
	StopNetwork(name string, keep bool)
	// PowerOff stops a domain without a shutdown of the guest. Pause pauses a domain until the domain is resumed.
	PowerOff(name string)
	Pause(name string)
	// Cut interrupts operations of the provider before their n-th change from now, as if the process had been killed.
	// Cut(0) ends the interruption.
	Cut(n int)
}

// networks are two address ranges for machines. The ranges do not overlap.
var networks = [2]netip.Prefix{netip.MustParsePrefix("192.168.240.0/24"), netip.MustParsePrefix("192.168.241.0/24")}

// timeout limits one operation.
const timeout = time.Minute

// suite contains the hypervisor of one test, and the cluster and network that the test uses.
type suite struct {
	*testing.T
	Setup
	host    Host
	cluster provider.Cluster
	net     provider.Network
}

func (s Setup) open(t *testing.T) *suite {
	t.Helper()
	return &suite{
		T: t, Setup: s, host: s.Open(t), cluster: provider.Cluster{Name: "suite", ID: "00112233445566aa"},
		net: provider.Network{Name: "nbsuite", Mode: provider.Isolated, CIDR: networks[0], Domain: "internal"},
	}
}

// spec returns the spec of a node such as n1. The number at the end of its name determines the MAC and the address.
func (b *suite) spec(node string) provider.Spec {
	i := node[len(node)-1] - '0'
	address := b.net.CIDR.Masked().Addr().As4()
	address[3] = 9 + i
	s := provider.Spec{
		Node: node, Role: "worker", Index: int(i), MAC: fmt.Sprintf("52:54:00:aa:00:%02x", i), Address: netip.AddrFrom4(address),
		VCPUs: 1, Memory: 64 << 20, Firmware: provider.BIOS, Image: b.Images[0], NewDisks: true,
		Identity: provider.Identity{Node: fmt.Appendf(nil, "{\"name\":%q}\n", node)},
	}
	if b.Identity != nil {
		s.Identity = b.Identity(node)
	}
	return s
}

func (b *suite) hostSetup(specs ...provider.Spec) provider.HostSetup {
	g := provider.HostSetup{Network: b.net, Images: b.Images[:1]}
	for _, s := range specs {
		if b.net.Mode.Ours() && !b.Lacks.Reservations {
			g.Reservations = append(g.Reservations, provider.Reservation{Node: s.Node, MAC: s.MAC, Address: s.Address})
		}
	}
	return g
}

// try runs one operation. It fails the test if the operation takes longer than the timeout.
func (b *suite) try(f func(context.Context) error) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := f(ctx)
	if ctx.Err() != nil {
		b.Fatalf("it took more than %s: %v", timeout, err)
	}
	return err
}

// must runs one operation, and fails the test if the operation fails.
func (b *suite) must(what string, f func(context.Context) error) {
	b.Helper()
	if err := b.try(f); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *suite) tryPrepare(g provider.HostSetup) error {
	b.Helper()
	return b.try(func(ctx context.Context) error { return b.host.Prepare(ctx, b.cluster, g) })
}

func (b *suite) prepare(specs ...provider.Spec) {
	b.Helper()
	b.must("Prepare", func(ctx context.Context) error { return b.host.Prepare(ctx, b.cluster, b.hostSetup(specs...)) })
}

func (b *suite) tryEnsure(s provider.Spec) error {
	b.Helper()
	return b.try(func(ctx context.Context) error { return b.host.Ensure(ctx, b.cluster, b.net, s) })
}

func (b *suite) ensure(s provider.Spec) {
	b.Helper()
	b.must("Ensure "+s.Node, func(ctx context.Context) error { return b.host.Ensure(ctx, b.cluster, b.net, s) })
}

// start prepares the hypervisor for a node, and creates and starts the node's machine.
func (b *suite) start(node string) provider.Spec {
	b.Helper()
	s := b.spec(node)
	b.prepare(s)
	b.ensure(s)
	return s
}

func (b *suite) remove(node string) {
	b.Helper()
	b.must("Remove "+node, func(ctx context.Context) error { return b.host.Remove(ctx, b.cluster, node) })
}

// tryClean calls Clean for a cluster that has no machines.
func (b *suite) tryClean() error {
	b.Helper()
	return b.try(func(ctx context.Context) error { return b.host.Clean(ctx, b.cluster, true) })
}

// wantInUse calls Clean for a cluster that has no machines. The error must say that an object is in use, and contain the texts.
func (b *suite) wantInUse(texts ...string) {
	b.Helper()
	err := b.tryClean()
	b.wantRefused(err, provider.ErrInUse)
	for _, text := range texts {
		b.wantError(err, text)
	}
}

// cleanAll calls Clean for a cluster without machines, and fails the test if an object remains.
func (b *suite) cleanAll() {
	b.Helper()
	if err := b.tryClean(); err != nil {
		b.Error(err)
	}
}

func (b *suite) survey() provider.Inventory {
	b.Helper()
	var inventory provider.Inventory
	b.must("Survey", func(ctx context.Context) (err error) {
		inventory, err = b.host.Survey(ctx, b.cluster, b.net)
		return err
	})
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

// domain returns the name of a node's machine on the hypervisor.
func (b *suite) domain(node string) string { return b.cluster.MachineName(node) }

func (b *suite) boot(node string) int { return b.host.Boot(b.domain(node)) }

// objects describes all objects on the hypervisor. It leaves out reservations, because the next Prepare changes them.
func (b *suite) objects() []string {
	return slices.DeleteFunc(b.host.Objects(), func(s string) bool { return strings.HasPrefix(s, "reservation ") })
}

// images returns the hashes of the complete images on the hypervisor.
func (b *suite) images() (hashes []string) {
	for _, object := range b.objects() {
		if m := regexp.MustCompile(`^(?:image |volume nixbench-image-)([0-9a-f]{16})(?:\.ok)?$`).FindStringSubmatch(object); m != nil {
			hashes = append(hashes, m[1])
		}
	}
	return hashes
}

// wantState fails the test unless the survey reports this state of a node's machine; empty: the machine does not exist.
func (b *suite) wantState(node string, want provider.State) {
	b.Helper()
	if f := b.machine(node); f.State != want {
		b.Errorf("%s is %q, want %q: %+v", node, f.State, want, f)
	}
}

// wantBoot fails the test if a node's machine has started more often than the argument boot says.
func (b *suite) wantBoot(node string, boot int) {
	b.Helper()
	if again := b.boot(node); again != boot {
		b.Errorf("%s was restarted: boot %d, then %d", node, boot, again)
	}
}

// wantError fails the test unless the error contains a text.
func (b *suite) wantError(err error, text string) {
	b.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		b.Errorf("err = %v, want one with %q", err, text)
	}
}

// wantRefused fails the test unless err wraps the error why and says how to fix the problem.
func (b *suite) wantRefused(err, why error) {
	b.Helper()
	var e *provider.Error
	if !errors.Is(err, why) || !errors.As(err, &e) || e.Fix == "" {
		b.Errorf("err = %v, want one that is %q and has a fix", err, why)
	}
}

// wantUnchanged fails the test if the objects on the hypervisor have changed. The argument before has the earlier objects.
func (b *suite) wantUnchanged(before []string) {
	b.Helper()
	if diff := cmp.Diff(before, b.objects(), cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("the hypervisor holds something else than before:\n%s", diff)
	}
}

// cutOff interrupts an operation before its first change, then before its second change, and so on, until the
// operation succeeds. It calls check after each interruption.
func (b *suite) cutOff(op func() error, check func(n int)) {
	b.Helper()
	for n := 1; n < 50; n++ {
		b.host.Cut(n)
		err := op()
		b.host.Cut(0)
		if err == nil {
			if n == 1 {
				b.Error("it has no effect that could be cut off")
			}
			return
		}
		check(n)
		if b.Failed() {
			b.Fatalf("that was after a cut before effect %d: %v", n, err)
		}
	}
}
