//go:build cgo

package main

import (
	"context"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/libvirt"
	"github.com/nixbench/nixbench/deploy/state"
)

// hypervisors are those of libvirt. Nothing is connected before something is asked of one.
func hypervisors(send event.Sink) deploy.Opener {
	return func(_ context.Context, name string, h state.Hypervisor) (provision.Provider, error) {
		p, err := libvirt.Open(name, libvirt.Options{URI: h.URI, Pool: h.Pool, PoolPath: h.PoolPath, Send: send})
		if err != nil {
			return nil, err // not p: a nil of that type is no nil Provider
		}
		return p, nil
	}
}
