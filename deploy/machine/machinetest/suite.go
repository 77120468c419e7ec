package machinetest

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

// Run tests a provider. Each test opens a separate hypervisor.
func Run(t *testing.T, s Setup) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Empty", testEmpty},
		{"Prepare", testPrepare},
		{"Ensure", testEnsure},
		{"EnsureAtOnce", testEnsureAtOnce},
		{"Resize", testResize},
		{"PoweredOff", testPoweredOff},
		{"Paused", testPaused},
		{"Power", testPower},
		{"Observe", testObserve},
		{"NewImage", testNewImage},
		{"EnsureUnknownImage", testEnsureUnknownImage},
		{"BrokenXML", testBrokenXML},
		{"Remove", testRemove},
		{"EnsureCutOff", testEnsureCutOff},
		{"RemoveCutOff", testRemoveCutOff},
		{"PrepareCutOff", testPrepareCutOff},
		{"ForeignDomain", testForeignDomain},
		{"ForeignNetwork", testForeignNetwork},
		{"ExistingNetwork", testExistingNetwork},
		{"RangeClash", testRangeClash},
		{"Reservations", testReservations},
		{"OtherCluster", testOtherCluster},
		{"SameName", testSameName},
		{"Clean", testClean},
		{"CleanRenamed", testCleanRenamed},
		{"ClusterRemoval", testClusterRemoval},
		{"NetworkStopped", func(b *suite) { testNetworkStopped(b, true) }},
		{"NetworkRemoved", func(b *suite) { testNetworkStopped(b, false) }},
		{"NetworkUndefined", testNetworkUndefined},
		{"GuestOnNetwork", testGuestOnNetwork},
		{"StalePort", testStalePort},
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
	before := b.Objects(b.T)
	inventory := b.survey()
	if len(inventory.Machines) != 0 || inventory.Network != nil || len(inventory.Images) != 0 {
		b.Errorf("there is something: %+v", inventory)
	}
	if inventory.Kind != provider.VM && inventory.Kind != provider.Container || inventory.CPUs < 1 || inventory.FreeMemory == 0 {
		b.Errorf("it says nothing of the host: %+v", inventory)
	}
	b.wantUnchanged(before)
}

func testPrepare(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	after := b.Objects(b.T)
	b.prepare(s)
	b.wantUnchanged(after)
	inventory := b.survey()
	want := &provider.ActualNetwork{Ours: true, Active: true, CIDR: b.net.CIDR, Reservations: b.hostSetup(s).Reservations}
	if diff := cmp.Diff(want, inventory.Network, cmpopts.EquateComparable(s.Address, b.net.CIDR), cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("network (-want +got):\n%s", diff)
	}
	if !slices.Equal(inventory.Images, []string{b.images[0].Hash}) {
		b.Errorf("images: %q", inventory.Images)
	}
}

func testEnsure(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot, objects := b.Boot(b.T, b.domain("n1")), b.Objects(b.T)
	if boot == "" {
		b.Error("it does not run")
	}
	want := provider.Actual{
		Node: "n1", Role: "worker", MAC: s.MAC, Address: s.Address, VCPUs: 1, Memory: s.Memory,
		Image: s.Image.Hash, State: provider.Running, Definition: s.Definition(),
	}
	if b.Lacks.Reservations {
		want.Address = provider.Actual{}.Address
	}
	if diff := cmp.Diff([]provider.Actual{want}, b.survey().Machines, cmpopts.EquateComparable(s.Address)); diff != "" {
		b.Errorf("machines (-want +got):\n%s", diff)
	}
	b.ensure(s)
	if again := b.Boot(b.T, b.domain("n1")); again != boot {
		b.Errorf("it was restarted: boot %s, then %s", boot, again)
	}
	b.wantUnchanged(objects)
}

func testEnsureAtOnce(b *suite) {
	specs := []provider.Spec{b.spec("n1", 1), b.spec("n2", 2), b.spec("n3", 3)}
	b.prepare(specs...)
	var all sync.WaitGroup
	errs := make([]error, len(specs))
	for i, s := range specs {
		all.Go(func() { errs[i] = b.tryEnsure(s) })
	}
	all.Wait()
	b.requireNoError("Ensure", errors.Join(errs...))
	for _, s := range specs {
		if f := b.machine(s.Node); f.State != provider.Running {
			b.Errorf("%s is %q", s.Node, f.State)
		}
	}
}

func testResize(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot, objects := b.Boot(b.T, b.domain("n1")), b.Objects(b.T)
	s.Memory += s.Memory / 2
	if b.machine("n1").Definition == s.Definition() {
		b.Error("the survey does not report the changed size")
	}
	b.ensure(s)
	f := b.machine("n1")
	if f.Definition != s.Definition() || f.Memory != s.Memory || f.State != provider.Running {
		b.Errorf("found %+v", f)
	}
	if b.Boot(b.T, b.domain("n1")) == boot {
		b.Error("it was not restarted")
	}
	b.wantUnchanged(objects)
}

func testPoweredOff(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	b.PowerOff(b.T, b.domain("n1"))
	if f := b.machine("n1"); f.State != provider.Off {
		b.Errorf("it is %q", f.State)
	}
	b.ensure(s)
	if f := b.machine("n1"); f.State != provider.Running {
		b.Errorf("it is %q", f.State)
	}
}

func testPaused(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot := b.Boot(b.T, b.domain("n1"))
	for range 2 {
		b.Pause(b.T, b.domain("n1"))
		if f := b.machine("n1"); f.State != provider.Paused {
			b.Errorf("it is %q", f.State)
		}
		b.ensure(s)
		if f := b.machine("n1"); f.State != provider.Running {
			b.Errorf("it is %q", f.State)
		}
	}
	if again := b.Boot(b.T, b.domain("n1")); again != boot {
		b.Errorf("it was restarted: boot %s, then %s", boot, again)
	}
	// A paused guest does not react to a shutdown, but the machine can be removed.
	b.Pause(b.T, b.domain("n1"))
	b.remove("n1")
	if f := b.machine("n1"); f.State != "" {
		b.Errorf("found %+v", f)
	}
}

// testNewImage tests that a machine keeps its disk when its role's image changes.
func testNewImage(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	boot := b.Boot(b.T, b.domain("n1"))
	s.Image = b.images[1]
	b.ensure(s)
	if f := b.machine("n1"); f.Image != b.images[0].Hash || b.Boot(b.T, b.domain("n1")) != boot {
		b.Errorf("found %+v", f)
	}
	s.Memory += s.Memory / 2
	b.ensure(s)
	if f := b.machine("n1"); f.Image != b.images[0].Hash {
		b.Errorf("after a restart the survey reports the image %s", f.Image)
	}
}

// testEnsureUnknownImage checks that Ensure fails if Prepare was called without the machine's image. The error must
// contain the image's hash, and no machine may remain.
func testEnsureUnknownImage(b *suite) {
	g := b.hostSetup()
	g.Images = nil
	b.requireNoError("Prepare", b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, g) }))
	err := b.tryEnsure(b.spec("n1", 1))
	if err == nil || !strings.Contains(err.Error(), b.images[0].Hash) {
		b.Errorf("err = %v", err)
	}
	b.remove("n1")
	if f := b.machine("n1"); f.State != "" {
		b.Errorf("found %+v", f)
	}
}

func testBrokenXML(b *suite) {
	s := b.spec("n1", 1)
	s.XML = "this is no <xml"
	b.prepare(s)
	before := b.Objects(b.T)
	if err := b.tryEnsure(s); err == nil || !strings.Contains(err.Error(), "role worker") {
		b.Errorf("err = %v", err)
	}
	b.wantUnchanged(before)
}

func testRemove(b *suite) {
	one, two := b.spec("n1", 1), b.spec("n2", 2)
	b.prepare(two)
	b.ensure(two)
	rest := b.Objects(b.T)
	b.prepare(one, two)
	b.ensure(one)
	b.remove("n1")
	b.wantUnchanged(rest)
	b.remove("n1")
	b.remove("never-was")
	b.wantUnchanged(rest)
	if f := b.machine("n2"); f.State != provider.Running {
		b.Errorf("n2 is %q", f.State)
	}
}

// cutOff interrupts an operation before its first change, then before its second change, and so on, until the
// operation succeeds. It calls check after each interruption.
func (b *suite) cutOff(op func() error, check func(n int)) {
	b.Helper()
	for n := 1; ; n++ {
		b.Cut(n)
		err := op()
		b.Cut(0)
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
		if n == 50 || b.Cuts > 0 && n == b.Cuts {
			return
		}
	}
}

func testEnsureCutOff(b *suite) {
	s := b.spec("n1", 1)
	b.prepare()
	empty := b.Objects(b.T)
	b.prepare(s)
	fresh := b.Objects(b.T)
	b.ensure(s)
	whole := b.Objects(b.T)
	b.remove("n1")
	b.wantUnchanged(empty)

	b.prepare(s)
	b.cutOff(func() error { return b.tryEnsure(s) }, func(n int) {
		// The survey finds the incomplete machine, so that it can be completed or removed.
		if f := b.machine("n1"); f.State == "" && !slices.Equal(b.Objects(b.T), fresh) {
			b.Errorf("left and not found: %q", additions(b.Objects(b.T), fresh))
		}
		b.remove("n1")
		b.wantUnchanged(empty)

		b.prepare(s)
		b.Cut(n)
		err := b.tryEnsure(s)
		b.Cut(0)
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
		b.prepare(s)
	})
}

func testRemoveCutOff(b *suite) {
	s := b.spec("n1", 1)
	b.prepare()
	empty := b.Objects(b.T)
	b.prepare(s)
	b.ensure(s)
	b.cutOff(func() error { return b.tryRemove("n1") }, func(int) {
		if f := b.machine("n1"); f.State == "" && !onlyReservations(additions(b.Objects(b.T), empty)) {
			b.Errorf("left and not found: %q", additions(b.Objects(b.T), empty))
		}
		b.remove("n1")
		b.wantUnchanged(empty)
		b.prepare(s)
		b.ensure(s)
	})
	b.wantUnchanged(empty)
}

func testPrepareCutOff(b *suite) {
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	b.cutOff(func() error {
		return b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup(s)) })
	}, func(int) {
		inventory := b.survey()
		if err := b.tryEnsure(s); err == nil && len(inventory.Images) == 0 {
			b.Error("a machine was made from an image that is not complete")
		}
		b.remove("n1")
		b.prepare(s)
		if inventory := b.survey(); len(inventory.Images) != 1 || !inventory.Network.Active {
			b.Errorf("after it was finished: %+v", inventory)
		}
		b.remove("n1")
		b.clean()
		b.wantUnchanged(before)
	})
}

func testForeignDomain(b *suite) {
	b.AddDomain(b.T, b.domain("n1"))
	boot := b.Boot(b.T, b.domain("n1"))
	s := b.spec("n1", 1)
	b.prepare(s)
	if inventory := b.survey(); !slices.Contains(inventory.Foreign, b.domain("n1")) || len(inventory.Machines) != 0 {
		b.Errorf("survey: %+v", inventory)
	}
	before := b.Objects(b.T)
	b.wantRefused(b.tryEnsure(s), provider.ErrForeign)
	b.wantUnchanged(before)
	b.remove("n1")
	if b.Boot(b.T, b.domain("n1")) != boot {
		b.Error("it was touched")
	}
}

func testForeignNetwork(b *suite) {
	b.AddNetwork(b.T, b.net.Name, b.Networks[1])
	before := b.Objects(b.T)
	b.wantRefused(b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup()) }), provider.ErrForeign)
	if n := b.survey().Network; n == nil || n.Ours || !n.Active || n.CIDR != b.Networks[1] {
		b.Errorf("survey: %+v", n)
	}
	b.clean()
	b.wantUnchanged(before)
}

func testExistingNetwork(b *suite) {
	b.net.Mode = provider.Existing
	if err := b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup()) }); err == nil {
		b.Error("it did not notice that there is no such network")
	}
	b.AddNetwork(b.T, b.net.Name, b.Networks[1])
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	if f := b.machine("n1"); f.State != provider.Running {
		b.Errorf("it is %q", f.State)
	}
	b.remove("n1")
	b.clean()
	b.wantUnchanged(before)
}

func testRangeClash(b *suite) {
	b.AddNetwork(b.T, "somebody", b.net.CIDR)
	err := b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup()) })
	b.wantRefused(err, provider.ErrClash)
	if err != nil && (!strings.Contains(err.Error(), "somebody") || !strings.Contains(err.Error(), b.net.Name)) {
		b.Errorf("the error does not name both networks: %v", err)
	}
}

func testReservations(b *suite) {
	if b.Lacks.Reservations {
		b.Skip("this hypervisor cannot change networks")
	}
	one, two, three := b.spec("n1", 1), b.spec("n2", 2), b.spec("n3", 3)
	for _, specs := range [][]provider.Spec{{one, two}, {two, three}, {three}, {one, two, three}, {}} {
		b.prepare(specs...)
		got := b.survey().Network.Reservations
		slices.SortFunc(got, func(x, y provider.Reservation) int { return strings.Compare(x.Node, y.Node) })
		if want := b.hostSetup(specs...).Reservations; !slices.Equal(got, want) {
			b.Errorf("reservations %v, want %v", got, want)
		}
	}
	// Swap the addresses of two nodes.
	one.Address, two.Address = two.Address, one.Address
	b.prepare(one, two)
	one.Address, two.Address = two.Address, one.Address
	b.prepare(one, two)
	if got := b.survey().Network.Reservations; len(got) != 2 {
		b.Errorf("reservations %v", got)
	}
}

func testOtherCluster(b *suite) {
	other := *b
	other.cluster = provider.Cluster{Name: "other", ID: "ffeeddccbbaa9988"}
	other.net.Name, other.net.CIDR = "nbother", b.Networks[1]
	empty := b.Objects(b.T)
	b.prepare()
	o := other.spec("n1", 7)
	g := other.hostSetup(o)
	g.Reservations = nil
	other.requireNoError("Prepare", other.runOperation(func(ctx context.Context) error { return other.Provider.Prepare(ctx, other.cluster, g) }))
	other.ensure(o)
	if inventory := b.survey(); len(inventory.Machines) != 0 || !slices.Contains(inventory.Foreign, "other-n1") {
		b.Errorf("survey: %+v", inventory)
	}
	b.remove("n1")
	b.clean()
	if f := other.machine("n1"); f.State != provider.Running {
		b.Errorf("the other cluster's machine is %q", f.State)
	}
	if inventory := other.survey(); len(inventory.Images) != 1 || inventory.Network == nil {
		b.Errorf("the other cluster lost something: %+v", inventory)
	}
	other.remove("n1")
	other.clean()
	b.wantUnchanged(empty)
}

// testClusterRemoval tests that the removal of a whole cluster leaves no object. If only one machine is removed
// after BeginClusterRemoval, the cluster remains usable, and the next Prepare removes the machine's reservation.
func testClusterRemoval(b *suite) {
	empty := b.Objects(b.T)
	one, two := b.spec("n1", 1), b.spec("n2", 2)
	b.prepare(one, two)
	b.ensure(one)
	b.ensure(two)
	b.Provider.BeginClusterRemoval(b.cluster)
	b.remove("n1")
	if left := additions(b.Objects(b.T), empty); slices.ContainsFunc(left, func(s string) bool { return !strings.HasPrefix(s, "reservation ") && strings.Contains(s, "n1") }) {
		b.Errorf("of n1 is left: %q", left)
	}
	b.prepare(two)
	if got := b.survey().Network.Reservations; !b.Lacks.Reservations && !slices.Equal(got, b.hostSetup(two).Reservations) {
		b.Errorf("reservations %v, want that of n2 alone", got)
	}
	b.remove("n2")
	b.clean()
	b.wantUnchanged(empty)
}

// testSameName tests that two clusters with the same name do not change each other's objects.
func testSameName(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	objects := b.Objects(b.T)
	sameNamed := *b
	sameNamed.cluster.ID = "99aabbccddeeff00"
	if inventory := sameNamed.survey(); len(inventory.Machines) != 0 || inventory.Network == nil || inventory.Network.Ours {
		b.Errorf("the other cluster observes %+v", inventory)
	}
	b.wantRefused(sameNamed.runOperation(func(ctx context.Context) error {
		return sameNamed.Provider.Prepare(ctx, sameNamed.cluster, sameNamed.hostSetup())
	}), provider.ErrForeign)
	b.wantRefused(sameNamed.tryEnsure(s), provider.ErrForeign)
	sameNamed.remove("n1")
	sameNamed.clean()
	b.wantUnchanged(objects)
	if f := b.machine("n1"); f.State != provider.Running {
		b.Errorf("it is %q", f.State)
	}
}

func testClean(b *suite) {
	b.AddDomain(b.T, "somebody")
	b.AddNetwork(b.T, "somebody", b.Networks[1])
	before := b.Objects(b.T)
	s := b.spec("n1", 1)
	g := b.hostSetup(s)
	g.Images = b.images[:]
	b.requireNoError("Prepare", b.runOperation(func(ctx context.Context) error { return b.Provider.Prepare(ctx, b.cluster, g) }))
	b.ensure(s)
	if left := b.remaining(); len(left) != 1 || !strings.HasPrefix(left[0], "network ") { // an image that a machine of the cluster uses is not reported
		b.Errorf("left while the machine exists: %q", left)
	}
	inventory := b.survey()
	if f := b.machine("n1"); f.State != provider.Running || inventory.Network == nil || !slices.Equal(inventory.Images, []string{s.Image.Hash}) {
		b.Errorf("after cleaning around it: %+v, %+v", f, inventory)
	}
	b.remove("n1")
	b.clean()
	b.wantUnchanged(before)
	b.clean()
	b.wantUnchanged(before)
}

// testCleanRenamed tests that Clean also removes a network that now has another name in the hive.
func testCleanRenamed(b *suite) {
	before := b.Objects(b.T)
	b.prepare()
	renamed := *b
	renamed.net.Name, renamed.net.CIDR = "nbrenamed", b.Networks[1]
	renamed.prepare()
	renamed.clean()
	b.wantUnchanged(before)
}

func testCancelled(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, f := range map[string]func() error{
		"Survey":  func() error { _, err := b.Provider.Survey(ctx, b.cluster, b.net); return err },
		"Prepare": func() error { return b.Provider.Prepare(ctx, b.cluster, b.hostSetup(s, b.spec("n2", 2))) },
		"Ensure":  func() error { return b.Provider.Ensure(ctx, b.cluster, b.net, s) },
		"Remove":  func() error { return b.Provider.Remove(ctx, b.cluster, "n1") },
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

// wantRefused fails the test unless err wraps why and has a fix.
func (b *suite) wantRefused(err, why error) {
	b.Helper()
	if !errors.Is(err, why) {
		b.Errorf("err = %v, want one that is %q", err, why)
	}
	var e *provider.Error
	if !errors.As(err, &e) || e.Fix == "" {
		b.Errorf("it has no fix: %v", err)
	}
}

// wantUnchanged fails the test unless the hypervisor has the same objects as before.
func (b *suite) wantUnchanged(before []string) {
	b.Helper()
	if diff := cmp.Diff(before, b.Objects(b.T), cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("the hypervisor holds something else than before:\n%s", diff)
	}
}

// additions returns the elements of all that are not in known.
func additions(all, known []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(known, s) })
}

// onlyReservations reports whether all objects are reservations. The next Prepare removes unused reservations.
func onlyReservations(objects []string) bool {
	return !slices.ContainsFunc(objects, func(s string) bool { return !strings.HasPrefix(s, "reservation ") })
}
