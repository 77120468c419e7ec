//go:build cgo

package main

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/libvirt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// hasLibvirt reports whether this program can create machines.
const hasLibvirt = true

// newHypervisorOpener returns an opener of libvirt hosts. A host is connected with the first
// request to it.
func newHypervisorOpener(send event.Sink) machine.Opener {
	return func(_ context.Context, name string, h state.Hypervisor) (provider.Provider, error) {
		p, err := libvirt.Open(name, libvirt.Options{URI: h.URI, Pool: h.Pool, PoolPath: h.PoolPath, Send: send})
		if err != nil {
			return nil, err // not p: an interface that holds a nil pointer is not nil
		}
		return p, nil
	}
}
