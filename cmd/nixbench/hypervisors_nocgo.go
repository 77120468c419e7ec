//go:build !cgo

package main

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// hasLibvirt reports whether this program can create machines.
const hasLibvirt = false

// newHypervisorOpener returns an opener that always fails, because this program was built without
// libvirt.
func newHypervisorOpener(event.Sink) machine.Opener {
	return func(_ context.Context, name string, h state.Hypervisor) (provider.Provider, error) {
		return nil, &provider.Error{
			Hypervisor: name, Op: "connect to " + h.URI, Err: errors.New("this nixbench was built without libvirt"),
			Fix: "it deploys to existing machines; on Linux, the Nix package can create machines, and a build with cgo and libvirt's headers",
		}
	}
}
