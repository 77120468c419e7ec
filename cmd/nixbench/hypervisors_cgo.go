//go:build cgo

package main

import (
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/libvirt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// hasLibvirt reports whether this program was built with libvirt, so that it can create machines.
const hasLibvirt = true

func openLibvirt(name string, h provider.Hypervisor, send event.Sink) (provider.Provider, error) {
	p, err := libvirt.Open(name, h, send)
	if err != nil {
		return nil, err // do not return p: an interface that holds a nil pointer is not nil
	}
	return p, nil
}
