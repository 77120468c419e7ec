//go:build !cgo

package main

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// newHypervisorOpener returns an opener that always fails, because this program was built without
// libvirt.
func newHypervisorOpener(event.Sink) machines.Opener {
	return func(_ context.Context, name string, h state.Hypervisor) (provision.Provider, error) {
		return nil, &provision.Error{
			Hypervisor: name, Op: "connect to " + h.URI, Err: errors.New("this nixbench was built without libvirt"),
			Fix: "build it with cgo, and libvirt's headers or the tag libvirt_dlopen",
		}
	}
}
