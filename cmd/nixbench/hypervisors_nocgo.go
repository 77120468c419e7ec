//go:build !cgo

package main

import (
	"errors"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// hasLibvirt reports whether this program was built with libvirt, so that it can create machines.
const hasLibvirt = false

// openLibvirt fails, because this program was built without libvirt.
func openLibvirt(name string, h provider.Hypervisor, _ event.Sink) (provider.Provider, error) {
	return nil, &provider.Error{
		Hypervisor: name, Op: "connect to " + h.URI, Err: errors.New("this nixbench was built without libvirt"),
		Fix: "it deploys to existing machines; on Linux, the Nix package can create machines, and a build with cgo and libvirt's headers",
	}
}
