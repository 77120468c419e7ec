package libvirt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// testContract tests a provider: it is the contract suite of the package provider. Each test opens a separate hypervisor.
func testContract(t *testing.T, s Setup) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Empty", testEmpty},
		{"Prepare", testPrepare},
		{"Ensure", testEnsure},
		{"EnsureAtOnce", testEnsureAtOnce},
		{"Resize", testResize},
		{"Stopped", testStopped},
		{"Power", testPower},
		{"States", testStates},
		{"NewImage", testNewImage},
		{"EnsureUnknownImage", testEnsureUnknownImage},
		{"Remove", testRemove},
		{"EnsureCutOff", testEnsureCutOff},
		{"RemoveCutOff", testRemoveCutOff},
		{"PrepareCutOff", testPrepareCutOff},
		{"ForeignDomain", testForeignDomain},
		{"ForeignNetwork", testForeignNetwork},
		{"ExistingNetwork", testExistingNetwork},
		{"Reservations", testReservations},
		{"OtherCluster", testOtherCluster},
		{"SameName", testSameName},
		{"Clean", testClean},
		{"CleanRenamed", testCleanRenamed},
		{"NetworkStopped", func(b *suite) { testNetworkStopped(b, true) }},
		{"NetworkRemoved", func(b *suite) { testNetworkStopped(b, false) }},
		{"GuestOnNetwork", testGuestOnNetwork},
		{"Copy", testCopiedMachine},
		{"DomainRemoved", testDomainRemoved},
		{"DiskRemoved", func(b *suite) { testDiskRemoved(b, false) }},
		{"DomainAndDiskRemoved", func(b *suite) { testDiskRemoved(b, true) }},
		{"Check", testCheck},
		{"Cancelled", testCancelled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(s.open(t)) })
	}
}

func testEmpty(b *suite) {
	before := b.objects()
	inventory := b.survey()
	if len(inventory.Machines) != 0 || inventory.Network != nil || len(b.images()) != 0 {
		b.Errorf("there is something: %+v", inventory)
	}
	if inventory.Kind != provider.VM && inventory.Kind != provider.Container || inventory.FreeMemory == 0 {
		b.Errorf("it says nothing of the host: %+v", inventory)
	}
	b.wantUnchanged(before)
}

// testPrepare tests that Prepare creates the network with its reservations and uploads the image, and that a second
// call changes nothing.
func testPrepare(b *suite) {
	s := b.spec("n1")
	b.prepare(s)
	after := b.objects()
	b.prepare(s)
	b.wantUnchanged(after)
	inventory := b.survey()
	want := &provider.ActualNetwork{Ours: true, Active: true, CIDR: b.net.CIDR, Reservations: b.hostSetup(s).Reservations}
	if diff := cmp.Diff(want, inventory.Network, cmpopts.EquateComparable(s.Address, b.net.CIDR), cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("network (-want +got):\n%s", diff)
	}
	if images := b.images(); !slices.Equal(images, []string{b.Images[0].Hash}) {
		b.Errorf("images: %q", images)
	}
}

// testEnsure tests that Ensure creates and starts a machine as the spec describes it, and that a second call changes nothing.
func testEnsure(b *suite) {
	s := b.start("n1")
	boot, objects := b.boot("n1"), b.objects()
	if boot == 0 {
		b.Error("it does not run")
	}
	want := provider.Actual{
		Node: "n1", Role: "worker", MAC: s.MAC, Address: s.Address, VCPUs: 1, Memory: s.Memory,
		Image: s.Image.Hash, State: provider.Running, Definition: s.Definition(),
	}
	if b.Lacks.Reservations {
		want.Address = provider.Actual{}.Address
	}
	want.Process = b.machine("n1").Process // the tests of Process look at processes
	if diff := cmp.Diff([]provider.Actual{want}, b.survey().Machines, cmpopts.EquateComparable(s.Address)); diff != "" {
		b.Errorf("machines (-want +got):\n%s", diff)
	}
	b.ensure(s)
	b.wantBoot("n1", boot)
	b.wantUnchanged(objects)
}

// testEnsureAtOnce tests that Ensure can create several machines at the same time.
func testEnsureAtOnce(b *suite) {
	specs := []provider.Spec{b.spec("n1"), b.spec("n2"), b.spec("n3")}
	b.prepare(specs...)
	var all sync.WaitGroup
	errs := make([]error, len(specs))
	for i, s := range specs {
		all.Go(func() { errs[i] = b.tryEnsure(s) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	for _, s := range specs {
		b.wantState(s.Node, provider.Running)
	}
}

// testResize tests that Ensure restarts a machine with the new memory size, and keeps its disk.
func testResize(b *suite) {
	s := b.start("n1")
	boot, objects := b.boot("n1"), b.objects()
	s.Memory += s.Memory / 2
	if b.machine("n1").Definition == s.Definition() {
		b.Error("the survey does not report the changed size")
	}
	b.ensure(s)
	if f := b.machine("n1"); f.Definition != s.Definition() || f.Memory != s.Memory || f.State != provider.Running {
		b.Errorf("found %+v", f)
	}
	if b.boot("n1") == boot {
		b.Error("it was not restarted")
	}
	b.wantUnchanged(objects)
}

// testStopped tests that Ensure starts a machine that is off, and resumes one that is paused.
func testStopped(b *suite) {
	s := b.start("n1")
	b.host.PowerOff(b.domain("n1"))
	b.wantState("n1", provider.Off)
	b.ensure(s)
	b.wantState("n1", provider.Running)
	boot := b.boot("n1")
	b.host.Pause(b.domain("n1"))
	b.wantState("n1", provider.Paused)
	b.ensure(s)
	b.wantState("n1", provider.Running)
	b.wantBoot("n1", boot)
	// A paused guest does not react to a shutdown, but the machine can be removed.
	b.host.Pause(b.domain("n1"))
	b.remove("n1")
	b.wantState("n1", "")
}

// testNewImage tests that a machine keeps its disk when its role's image changes.
func testNewImage(b *suite) {
	s := b.start("n1")
	boot := b.boot("n1")
	s.Image = b.Images[1]
	b.ensure(s)
	b.wantBoot("n1", boot)
	s.Memory += s.Memory / 2
	b.ensure(s)
	if f := b.machine("n1"); f.Image != b.Images[0].Hash {
		b.Errorf("after a restart the survey reports the image %s", f.Image)
	}
}

// testEnsureUnknownImage checks that Ensure fails if Prepare was called without the machine's image. The error must
// contain the image's hash, and no machine may remain.
func testEnsureUnknownImage(b *suite) {
	if err := b.tryPrepare(provider.HostSetup{Network: b.net}); err != nil {
		b.Fatal(err)
	}
	b.wantError(b.tryEnsure(b.spec("n1")), b.Images[0].Hash)
	b.remove("n1")
	b.wantState("n1", "")
}

func testRemove(b *suite) {
	b.start("n2")
	rest := b.objects()
	one := b.spec("n1")
	b.prepare(one, b.spec("n2"))
	b.ensure(one)
	for _, node := range []string{"n1", "n1", "never-was"} {
		b.remove(node)
		b.wantUnchanged(rest)
	}
	b.wantState("n2", provider.Running)
}

// testEnsureCutOff interrupts Ensure before each change. It tests that the incomplete machine can be removed, and can be completed.
func testEnsureCutOff(b *suite) {
	b.prepare()
	empty := b.objects()
	s := b.start("n1")
	whole := b.objects()
	b.remove("n1")
	b.wantUnchanged(empty)
	b.cutOff(func() error { return b.tryEnsure(s) }, func(n int) {
		// The survey finds the incomplete machine, so that it can be completed or removed.
		if f := b.machine("n1"); f.State == "" {
			b.wantUnchanged(empty)
		}
		b.remove("n1")
		b.wantUnchanged(empty)

		b.host.Cut(n)
		err := b.tryEnsure(s)
		b.host.Cut(0)
		if err == nil {
			b.Error("the second time it was not cut off")
		}
		b.ensure(s)
		if f := b.machine("n1"); f.State != provider.Running || f.Image != s.Image.Hash {
			b.Errorf("after it was finished: %+v", f)
		}
		b.wantUnchanged(whole)
		b.remove("n1")
		b.wantUnchanged(empty)
	})
}

// testRemoveCutOff interrupts Remove before each change, and tests that a second call of Remove completes the removal.
func testRemoveCutOff(b *suite) {
	b.prepare()
	empty := b.objects()
	s := b.start("n1")
	b.cutOff(func() error {
		return b.try(func(ctx context.Context) error { return b.host.Remove(ctx, b.cluster, "n1") })
	}, func(int) {
		if f := b.machine("n1"); f.State == "" {
			b.wantUnchanged(empty)
		}
		b.remove("n1")
		b.wantUnchanged(empty)
		b.ensure(s)
	})
	b.wantUnchanged(empty)
}

// testPrepareCutOff interrupts Prepare before each change, and tests that a second call of Prepare completes it.
func testPrepareCutOff(b *suite) {
	before := b.objects()
	s := b.spec("n1")
	b.cutOff(func() error { return b.tryPrepare(b.hostSetup(s)) }, func(int) {
		images := b.images()
		if err := b.tryEnsure(s); err == nil && len(images) == 0 {
			b.Error("a machine was made from an image that is not complete")
		}
		b.remove("n1")
		b.prepare(s)
		if inventory := b.survey(); len(b.images()) != 1 || !inventory.Network.Active {
			b.Errorf("after it was finished: %+v", inventory)
		}
		b.remove("n1")
		b.cleanAll()
		b.wantUnchanged(before)
	})
}

// testReservations tests that Prepare adds, changes and removes the reservations of the cluster's network.
func testReservations(b *suite) {
	if b.Lacks.Reservations {
		b.Skip("this hypervisor cannot change networks")
	}
	one, two, three := b.spec("n1"), b.spec("n2"), b.spec("n3")
	swapped1, swapped2 := one, two
	swapped1.Address, swapped2.Address = two.Address, one.Address
	for _, specs := range [][]provider.Spec{{one, two}, {two, three}, {three}, {one, two, three}, {}, {one, two}, {swapped1, swapped2}, {one, two}} {
		b.prepare(specs...)
		got := b.survey().Network.Reservations
		slices.SortFunc(got, func(x, y provider.Reservation) int { return strings.Compare(x.Node, y.Node) })
		if want := b.hostSetup(specs...).Reservations; !slices.Equal(got, want) {
			b.Errorf("reservations %v, want %v", got, want)
		}
	}
}

// testClean tests that Clean removes images and networks that no machine uses. While a machine exists, Clean
// keeps the network.
func testClean(b *suite) {
	b.host.AddDomain("somebody")
	b.host.AddNetwork("somebody", networks[1])
	before := b.objects()
	s := b.spec("n1")
	g := b.hostSetup(s)
	g.Images = b.Images[:]
	if err := b.tryPrepare(g); err != nil {
		b.Fatal(err)
	}
	b.ensure(s)
	b.must("Clean", func(ctx context.Context) error { return b.host.Clean(ctx, b.cluster, false) })
	inventory := b.survey()
	if inventory.Network == nil || !slices.Equal(b.images(), []string{s.Image.Hash}) {
		b.Errorf("after cleaning around it: %+v", inventory)
	}
	b.wantState("n1", provider.Running)
	b.remove("n1")
	for range 2 {
		b.cleanAll()
		b.wantUnchanged(before)
	}
}

// testCleanRenamed tests that Clean also removes a network that now has another name in the hive.
func testCleanRenamed(b *suite) {
	before := b.objects()
	b.prepare()
	b.net.Name, b.net.CIDR = "nbrenamed", networks[1]
	b.prepare()
	b.cleanAll()
	b.wantUnchanged(before)
}

// testCheck tests that Check and Ensure find an invalid spec, and create nothing.
func testCheck(b *suite) {
	s := b.spec("n1")
	b.prepare(s)
	before := b.objects()
	check := func(ctx context.Context) error { return b.host.Check(ctx, b.cluster, b.net, s) }
	b.must("Check", check)
	s.Image = provider.Image{} // the image is not known yet
	b.must("Check", check)
	if b.survey().Kind == provider.Container {
		name := b.cluster.Name
		b.cluster.Name = strings.Repeat("c", 62)
		b.wantError(b.try(check), "65 bytes")
		b.cluster.Name = name
	}
	s = b.spec("n1")
	s.XML = "this is no <xml"
	b.wantError(b.try(check), "role worker")
	b.wantError(b.tryEnsure(s), "role worker")
	b.wantUnchanged(before)
}

// testCancelled tests that operations with a cancelled context return soon, with the error context.Canceled.
func testCancelled(b *suite) {
	s := b.spec("n1")
	b.prepare(s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, f := range map[string]func() error{
		"Survey":  func() error { _, err := b.host.Survey(ctx, b.cluster, b.net); return err },
		"Prepare": func() error { return b.host.Prepare(ctx, b.cluster, b.hostSetup(s, b.spec("n2"))) },
		"Ensure":  func() error { return b.host.Ensure(ctx, b.cluster, b.net, s) },
		"Remove":  func() error { return b.host.Remove(ctx, b.cluster, "n1") },
	} {
		start := time.Now()
		if err := f(); !errors.Is(err, context.Canceled) {
			b.Errorf("%s: err = %v", name, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			b.Errorf("%s took %s", name, took)
		}
	}
}
