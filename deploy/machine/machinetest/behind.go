package machinetest

import (
	"context"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Tests of changes that other programs make on the hypervisor.

// testNetworkStopped tests that a machine whose network was stopped, and also removed unless keep is set, is detached
// until the next Ensure.
func testNetworkStopped(b *suite, keep bool) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot, objects := b.Boot(b.T, b.domain("n1")), b.Objects(b.T)
	if b.machine("n1").Detached {
		b.Fatal("it is detached from the start")
	}
	b.StopNetwork(b.T, b.net.Name, keep)
	if f := b.machine("n1"); f.State != provider.Running || !f.Detached {
		b.Errorf("without its network: %+v", f)
	}
	b.prepare(s)
	if !b.Lacks.Ports && !b.machine("n1").Detached {
		b.Error("the network is active again, and the machine is not reported as detached")
	}
	b.ensure(s)
	if f := b.machine("n1"); f.State != provider.Running || f.Detached {
		b.Errorf("after it was connected again: %+v", f)
	}
	now := b.Boot(b.T, b.domain("n1"))
	if kind := b.survey().Kind; !b.Lacks.Ports && (now != boot) != (kind == provider.Container) {
		b.Errorf("a %s: boot %s, then %s", kind, boot, now)
	}
	b.wantUnchanged(objects)
	b.ensure(s)
	if again := b.Boot(b.T, b.domain("n1")); again != now {
		b.Errorf("connected once more: boot %s, then %s", now, again)
	}
}

// testNetworkUndefined tests that Prepare redefines an active network without a definition, and that machines on the
// network keep running.
func testNetworkUndefined(b *suite) {
	if b.Lacks.Transient {
		b.Skip("a network of this hypervisor does not outlive its definition")
	}
	one, two := b.spec("n1", 1), b.spec("n2", 2)
	b.prepare(one)
	b.ensure(one)
	boot := b.Boot(b.T, b.domain("n1"))
	b.UndefineNetwork(b.T, b.net.Name)
	if n := b.survey().Network; n == nil || !n.Active || !n.Transient || !n.Ours {
		b.Errorf("undefined: %+v", n)
	}
	b.prepare(one, two)
	if n := b.survey().Network; n == nil || !n.Active || n.Transient || len(n.Reservations) != 2 {
		b.Errorf("defined again: %+v", n)
	}
	b.ensure(one)
	if f := b.machine("n1"); f.Detached || b.Boot(b.T, b.domain("n1")) != boot {
		b.Errorf("it was disturbed: %+v", f)
	}
}

// testGuestOnNetwork tests that Clean keeps and reports a network that a foreign machine uses, until that machine is
// removed.
func testGuestOnNetwork(b *suite) {
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	b.AddGuest(b.T, "guest", b.net.Name)
	b.Provider.BeginClusterRemoval(b.cluster)
	b.remove("n1")
	for range 2 {
		left := b.remaining()
		if len(left) != 1 || !strings.Contains(left[0], "network "+b.net.Name) || !strings.Contains(left[0], "guest") {
			b.Errorf("left: %q", left)
		}
		if n := b.survey().Network; n == nil || !n.Ours || !n.Active {
			b.Errorf("the network is now %+v", n)
		}
	}
	b.RemoveDomain(b.T, "guest")
	if left := b.remaining(); len(left) > 0 {
		b.Errorf("left: %q", left)
	}
	b.wantUnchanged(before)
}

// testStalePort tests that Clean removes a network with the stale port of a removed machine, and keeps a network with
// the port of a foreign machine.
func testStalePort(b *suite) {
	if b.AddStalePort == nil || b.Lacks.Ports {
		b.Skip("networks of this hypervisor have no ports")
	}
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	b.AddStalePort(b.T, b.net.Name, b.cluster, "n1")
	if b.machine("n1").Detached {
		b.Error("an additional port makes the machine detached")
	}
	b.remove("n1")
	b.Provider.BeginClusterRemoval(b.cluster)
	if left := b.remaining(); len(left) > 0 {
		b.Errorf("left: %q", left)
	}
	b.wantUnchanged(before)

	b.prepare()
	b.AddStalePort(b.T, b.net.Name, provider.Cluster{Name: "elsewhere", ID: "ffeeddccbbaa9988"}, "x")
	left := b.remaining()
	if len(left) != 1 || !strings.Contains(left[0], "elsewhere") || !strings.Contains(left[0], "net-port-delete") {
		b.Errorf("left: %q", left)
	}
}

// testCopiedMachine tests that a clone of a machine, which carries the machine's mark, is not treated as a
// machine of the cluster.
func testCopiedMachine(b *suite) {
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot := b.Boot(b.T, b.domain("n1"))
	b.CopyMachine(b.T, b.domain("n1"), "zz-copy")
	b.CopyMachine(b.T, b.domain("n1"), "aa-copy")
	inventory := b.survey()
	if len(inventory.Machines) != 1 || inventory.Machines[0].State != provider.Running {
		b.Errorf("machines: %+v", inventory.Machines)
	}
	want := []provider.Copy{{Domain: "aa-copy", Node: "n1", MAC: s.MAC}, {Domain: "zz-copy", Node: "n1", MAC: s.MAC}}
	slices.SortFunc(inventory.Copies, func(x, y provider.Copy) int { return strings.Compare(x.Domain, y.Domain) })
	if !slices.Equal(inventory.Copies, want) || !slices.Contains(inventory.Foreign, "zz-copy") {
		b.Errorf("copies: %+v, foreign %q", inventory.Copies, inventory.Foreign)
	}
	b.ensure(s)
	if b.Boot(b.T, b.domain("n1")) != boot {
		b.Error("the machine was restarted")
	}
	b.remove("n1")
	inventory = b.survey()
	if len(inventory.Machines) != 0 || len(inventory.Copies) != 2 {
		b.Errorf("without the machine: %+v", inventory)
	}
	b.RemoveDomain(b.T, "aa-copy")
	b.Provider.BeginClusterRemoval(b.cluster)
	left := b.remaining()
	if len(left) == 0 || !strings.Contains(left[0], "zz-copy") {
		b.Errorf("left: %q", left)
	}
	if inventory := b.survey(); inventory.Kind == provider.VM { // an image for containers has no disk in the pool
		if !slices.Contains(inventory.Images, s.Image.Hash) || len(left) != 2 || !strings.HasPrefix(left[1], "image "+s.Image.Hash) {
			b.Errorf("the copy uses image %s: images %q, left %q", s.Image.Hash, inventory.Images, left)
		}
	}
	b.RemoveDomain(b.T, "zz-copy")
	if left := b.remaining(); len(left) > 0 {
		b.Errorf("left: %q", left)
	}
	b.wantUnchanged(before)
}

// testCheck tests that Check finds an invalid spec, and creates nothing.
func testCheck(b *suite) {
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	tryCheck := func(c provider.Cluster) error {
		return b.runOperation(func(ctx context.Context) error { return b.Provider.Check(ctx, c, b.net, s) })
	}
	b.requireNoError("Check", tryCheck(b.cluster))
	s.Image = provider.Image{} // the image is not known yet
	b.requireNoError("Check", tryCheck(b.cluster))
	if b.survey().Kind == provider.Container {
		long := provider.Cluster{Name: strings.Repeat("c", 62), ID: b.cluster.ID}
		if err := tryCheck(long); err == nil || !strings.Contains(err.Error(), "65 bytes") {
			b.Errorf("a name that is too long for a container: %v", err)
		}
	}
	s.XML = "this is no <xml"
	if err := tryCheck(b.cluster); err == nil || !strings.Contains(err.Error(), "role worker") {
		b.Errorf("err = %v", err)
	}
	b.wantUnchanged(before)
}

// testDomainRemoved tests that a machine whose domain was removed is defined again around its disk, also after an interruption.
func testDomainRemoved(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	objects := b.Objects(b.T)
	s.NewDisks = false
	s.Image.Hash = "3333333333333333" // no disk can be made from an unknown image
	removeDomain := func() {
		b.RemoveDomain(b.T, b.domain("n1"))
		if f := b.machine("n1"); f.State != provider.Incomplete || !f.HasDisk {
			b.Errorf("without its domain: %+v", f)
		}
	}
	removeDomain()
	b.cutOff(func() error { return b.tryEnsure(s) }, func(int) {
		b.ensure(s)
		if f := b.machine("n1"); f.State != provider.Running {
			b.Errorf("defined again: %+v", f)
		}
		b.wantUnchanged(objects)
		removeDomain()
	})
	b.wantUnchanged(objects)
}

// testDiskRemoved tests that a machine whose disk was removed gets a new one only if the spec says so.
func testDiskRemoved(b *suite, withDomain bool) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	objects := b.Objects(b.T)
	b.PowerOff(b.T, b.domain("n1"))
	if withDomain {
		b.RemoveDomain(b.T, b.domain("n1"))
	}
	b.RemoveDisk(b.T, b.cluster, "n1")
	if f := b.machine("n1"); f.State != provider.Incomplete || f.HasDisk {
		b.Errorf("without its disk: %+v", f)
	}
	left := b.Objects(b.T)
	s.NewDisks = false
	b.wantRefused(b.tryEnsure(s), provider.ErrNoDisk)
	b.wantUnchanged(left)
	s.NewDisks, s.Image = true, b.images[1]
	g := b.hostSetup(s)
	g.Images = b.images[:]
	b.requireNoError("Prepare", b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, g) }))
	b.ensure(s)
	if f := b.machine("n1"); f.State != provider.Running || f.Image != s.Image.Hash {
		b.Errorf("created again: %+v", f)
	}
	if lost := additions(objects, b.Objects(b.T)); len(lost) > 0 {
		b.Errorf("it lacks %q", lost)
	}
}
