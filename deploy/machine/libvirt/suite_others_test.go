package libvirt

import (
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// This file tests a provider on a hypervisor with objects of other clusters and programs, and after changes that other programs made.

// testForeignDomain tests that a foreign domain with the name of a machine is not changed, and that Ensure returns an error.
func testForeignDomain(b *suite) {
	b.host.AddDomain(b.domain("n1"))
	boot := b.boot("n1")
	s := b.spec("n1")
	b.prepare(s)
	if inventory := b.survey(); !slices.Contains(inventory.Foreign, b.domain("n1")) || len(inventory.Machines) != 0 {
		b.Errorf("survey: %+v", inventory)
	}
	before := b.objects()
	b.wantRefused(b.tryEnsure(s), provider.ErrForeign)
	b.wantUnchanged(before)
	b.remove("n1")
	b.wantBoot("n1", boot)
}

func testForeignNetwork(b *suite) {
	b.host.AddNetwork(b.net.Name, networks[1])
	before := b.objects()
	b.wantRefused(b.tryPrepare(b.hostSetup()), provider.ErrForeign)
	if n := b.survey().Network; n == nil || n.Ours || !n.Active || n.CIDR != networks[1] {
		b.Errorf("survey: %+v", n)
	}
	b.cleanAll()
	b.wantUnchanged(before)
}

// testExistingNetwork tests that machines can use a foreign network in the mode existing, and that this network is not changed.
func testExistingNetwork(b *suite) {
	b.net.Mode = provider.Existing
	if b.tryPrepare(b.hostSetup()) == nil {
		b.Error("it did not notice that there is no such network")
	}
	b.host.AddNetwork(b.net.Name, networks[1])
	before := b.objects()
	b.start("n1")
	b.wantState("n1", provider.Running)
	b.remove("n1")
	b.cleanAll()
	b.wantUnchanged(before)
}

// testOtherCluster tests that a cluster neither changes nor removes the objects of another cluster on the same hypervisor.
func testOtherCluster(b *suite) {
	other := *b
	other.cluster = provider.Cluster{Name: "other", ID: "ffeeddccbbaa9988"}
	other.net.Name, other.net.CIDR = "nbother", networks[1]
	empty := b.objects()
	b.prepare()
	other.start("n7")
	if inventory := b.survey(); len(inventory.Machines) != 0 || !slices.Contains(inventory.Foreign, "other-n7") {
		b.Errorf("survey: %+v", inventory)
	}
	b.remove("n7")
	b.cleanAll()
	other.wantState("n7", provider.Running)
	if inventory := other.survey(); len(other.images()) != 1 || inventory.Network == nil {
		b.Errorf("the other cluster lost something: %+v", inventory)
	}
	other.remove("n7")
	other.cleanAll()
	b.wantUnchanged(empty)
}

// testSameName tests that two clusters with the same name do not change each other's objects.
func testSameName(b *suite) {
	s := b.start("n1")
	objects := b.objects()
	sameNamed := *b
	sameNamed.cluster.ID = "99aabbccddeeff00"
	if inventory := sameNamed.survey(); len(inventory.Machines) != 0 || inventory.Network == nil || inventory.Network.Ours {
		b.Errorf("the other cluster observes %+v", inventory)
	}
	b.wantRefused(sameNamed.tryPrepare(sameNamed.hostSetup()), provider.ErrForeign)
	b.wantRefused(sameNamed.tryEnsure(s), provider.ErrForeign)
	sameNamed.remove("n1")
	sameNamed.cleanAll()
	b.wantUnchanged(objects)
	b.wantState("n1", provider.Running)
}

// testNetworkStopped stops the network of a machine and, unless keep is set, removes the network. It tests that Prepare makes the
// network active again.
func testNetworkStopped(b *suite, keep bool) {
	s := b.start("n1")
	objects := b.objects()
	b.host.StopNetwork(b.net.Name, keep)
	if n := b.survey().Network; n != nil && n.Active {
		b.Errorf("stopped: %+v", n)
	}
	b.prepare(s)
	if n := b.survey().Network; n == nil || !n.Active || !n.Ours {
		b.Errorf("prepared: %+v", n)
	}
	b.ensure(s)
	b.wantState("n1", provider.Running)
	b.wantUnchanged(objects)
}

// testGuestOnNetwork tests that Clean keeps and reports a network that a foreign machine uses, until that machine is
// removed.
func testGuestOnNetwork(b *suite) {
	before := b.objects()
	b.start("n1")
	b.host.AddGuest("guest", b.net.Name)
	b.remove("n1")
	for range 2 {
		b.wantInUse("network "+b.net.Name, "guest")
		if n := b.survey().Network; n == nil || !n.Ours || !n.Active {
			b.Errorf("the network is now %+v", n)
		}
	}
	b.host.RemoveDomain("guest")
	b.cleanAll()
	b.wantUnchanged(before)
}

// testCopiedMachine tests that a clone of a machine is not treated as a machine of the cluster, although the clone has
// the mark of the machine.
func testCopiedMachine(b *suite) {
	before := b.objects()
	s := b.start("n1")
	boot := b.boot("n1")
	b.host.CopyMachine(b.domain("n1"), "zz-copy")
	b.host.CopyMachine(b.domain("n1"), "aa-copy")
	inventory := b.survey()
	if len(inventory.Machines) != 1 || inventory.Machines[0].State != provider.Running {
		b.Errorf("machines: %+v", inventory.Machines)
	}
	if want := []string{"aa-copy", "zz-copy"}; !slices.Equal(inventory.Foreign, want) {
		b.Errorf("foreign %q, want %q", inventory.Foreign, want)
	}
	b.ensure(s)
	b.wantBoot("n1", boot)
	b.remove("n1")
	b.wantState("n1", "")
	b.host.RemoveDomain("aa-copy")
	b.wantInUse("zz-copy")
	b.host.RemoveDomain("zz-copy")
	b.cleanAll()
	b.wantUnchanged(before)
}

// testDomainRemoved tests that a machine whose domain was removed is defined again around its disk, also after an interruption.
func testDomainRemoved(b *suite) {
	s := b.start("n1")
	objects := b.objects()
	s.NewDisks = false
	s.Image.Hash = "3333333333333333" // an unknown image: the test fails if Ensure creates a disk
	removeDomain := func() {
		b.host.RemoveDomain(b.domain("n1"))
		if f := b.machine("n1"); f.State != provider.Incomplete || !f.HasDisk {
			b.Errorf("without its domain: %+v", f)
		}
	}
	removeDomain()
	b.cutOff(func() error { return b.tryEnsure(s) }, func(int) {
		b.ensure(s)
		b.wantState("n1", provider.Running)
		b.wantUnchanged(objects)
		removeDomain()
	})
	b.wantUnchanged(objects)
}

// testDiskRemoved removes the disk of a machine, and tests that Ensure creates a new disk only if the spec says so.
func testDiskRemoved(b *suite, withDomain bool) {
	s := b.start("n1")
	objects := b.objects()
	b.host.PowerOff(b.domain("n1"))
	if withDomain {
		b.host.RemoveDomain(b.domain("n1"))
	}
	b.host.RemoveDisk(b.cluster, "n1")
	if f := b.machine("n1"); f.State != provider.Incomplete || f.HasDisk {
		b.Errorf("without its disk: %+v", f)
	}
	left := b.objects()
	s.NewDisks = false
	b.wantRefused(b.tryEnsure(s), provider.ErrNoDisk)
	b.wantUnchanged(left)
	s.NewDisks, s.Image = true, b.Images[1]
	g := b.hostSetup(s)
	g.Images = b.Images[:]
	if err := b.tryPrepare(g); err != nil {
		b.Fatal(err)
	}
	b.ensure(s)
	if f := b.machine("n1"); f.State != provider.Running || f.Image != s.Image.Hash {
		b.Errorf("created again: %+v", f)
	}
	now := b.objects()
	if lost := slices.DeleteFunc(objects, func(o string) bool { return slices.Contains(now, o) }); len(lost) > 0 {
		b.Errorf("it lacks %q", lost)
	}
}
