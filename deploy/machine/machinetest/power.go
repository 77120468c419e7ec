package machinetest

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// testPower tests that a machine is shut down and started without another change.
func testPower(b *suite) {
	s := b.spec("n1", 1)
	b.prepare(s)
	b.ensure(s)
	objects, boot := b.Objects(b.T), b.Boot(b.T, b.domain("n1"))
	shutDown := func(force bool) error {
		return b.runOperation(func(ctx context.Context) error { return b.Provider.ShutDown(ctx, b.cluster, "n1", force) })
	}
	start := func() error {
		return b.runOperation(func(ctx context.Context) error { return b.Provider.Start(ctx, b.cluster, "n1") })
	}

	// The system may ignore the request. Then the machine must run on.
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	err := b.Provider.ShutDown(ctx, b.cluster, "n1", false)
	cancel()
	switch state := b.machine("n1").State; {
	case err == nil && state != provider.Off:
		b.Errorf("after it was shut down, it is %q", state)
	case err != nil && (state != provider.Running || !errors.Is(err, context.DeadlineExceeded)):
		b.Errorf("it is %q after %v", state, err)
	}

	for range 2 {
		b.requireNoError("shut down with force", shutDown(true))
		if f := b.machine("n1"); f.State != provider.Off {
			b.Errorf("it is %q", f.State)
		}
	}
	b.requireNoError("shut down a machine that is off", shutDown(false))
	b.requireNoError("start", start())
	again := b.Boot(b.T, b.domain("n1"))
	if f := b.machine("n1"); f.State != provider.Running || again == boot {
		b.Errorf("it is %q, boot %s after boot %s", f.State, again, boot)
	}
	b.requireNoError("start a machine that runs", start())
	b.Pause(b.T, b.domain("n1"))
	b.requireNoError("resume", start())
	if f := b.machine("n1"); f.State != provider.Running || b.Boot(b.T, b.domain("n1")) != again {
		b.Errorf("it is %q", f.State)
	}
	b.wantUnchanged(objects)

	b.remove("n1")
	b.requireNoError("shut down a missing machine", shutDown(false))
	if start() == nil {
		b.Error("a missing machine was started")
	}
	b.AddDomain(b.T, b.domain("n1"))
	before := b.Objects(b.T)
	b.wantRefused(shutDown(true), provider.ErrForeign)
	b.wantRefused(start(), provider.ErrForeign)
	b.wantUnchanged(before)
}
