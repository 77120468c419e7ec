package libvirt

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// testPower tests that ShutDown and Start change nothing else about a machine.
func testPower(b *suite) {
	b.start("n1")
	objects, boot := b.objects(), b.boot("n1")
	shutDown := func(force bool) error {
		return b.try(func(ctx context.Context) error { return b.host.ShutDown(ctx, b.cluster, "n1", force) })
	}
	start := func(ctx context.Context) error { return b.host.Start(ctx, b.cluster, "n1") }

	// The system may ignore the request to shut down. In this case the machine must continue to run.
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	err := b.host.ShutDown(ctx, b.cluster, "n1", false)
	cancel()
	switch state := b.machine("n1").State; {
	case err == nil && state != provider.Off:
		b.Errorf("after it was shut down, it is %q", state)
	case err != nil && (state != provider.Running || !errors.Is(err, context.DeadlineExceeded)):
		b.Errorf("it is %q after %v", state, err)
	}
	for _, force := range []bool{true, true, false} { // shut down three times: a machine that is already off is no error
		if err := shutDown(force); err != nil {
			b.Fatal(err)
		}
		b.wantState("n1", provider.Off)
	}
	b.must("start", start)
	b.wantState("n1", provider.Running)
	again := b.boot("n1")
	if again == boot {
		b.Errorf("it has still boot %d", again)
	}
	b.must("start a machine that runs", start)
	b.host.Pause(b.domain("n1"))
	b.must("resume", start)
	b.wantState("n1", provider.Running)
	b.wantBoot("n1", again)
	b.wantUnchanged(objects)

	b.remove("n1")
	if err := shutDown(false); err != nil {
		b.Errorf("shut down a missing machine: %v", err)
	}
	if b.try(start) == nil {
		b.Error("a missing machine was started")
	}
	b.host.AddDomain(b.domain("n1"))
	before := b.objects()
	b.wantRefused(shutDown(true), provider.ErrForeign)
	b.wantRefused(b.try(start), provider.ErrForeign)
	b.wantUnchanged(before)
}

// testStates tests that States returns the same states of machines as Survey.
func testStates(b *suite) {
	one, two := b.spec("n1"), b.spec("n2")
	b.prepare(one, two)
	b.ensure(one)
	b.ensure(two)
	wantStates := func(want map[string]provider.State, nodes ...string) {
		b.Helper()
		var got map[string]provider.State
		b.must("States", func(ctx context.Context) (err error) {
			got, err = b.host.States(ctx, b.cluster, nodes)
			return err
		})
		if !maps.Equal(got, want) {
			b.Errorf("the states of %v are %v, want %v", nodes, got, want)
		}
	}
	wantStates(map[string]provider.State{"n1": provider.Running, "n2": provider.Running}, "n1", "n2", "missing")
	b.host.Pause(b.domain("n1"))
	wantStates(map[string]provider.State{"n1": provider.Paused}, "n1")
	b.host.PowerOff(b.domain("n2"))
	wantStates(map[string]provider.State{"n1": provider.Paused, "n2": provider.Off}, "n1", "n2")
}
