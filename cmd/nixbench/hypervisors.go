package main

import (
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// newHypervisorOpener returns a function that opens hypervisors. It chooses the constructor of the provider, which manages machines on the
// hypervisor, by cluster.hypervisors.<name>.kind. A provider connects to the hypervisor with the first request, and sends its events to send.
func newHypervisorOpener(send event.Sink) machine.Opener {
	return func(name string, h provider.Hypervisor) (provider.Provider, error) {
		switch h.Kind {
		case "", "libvirt":
			return openLibvirt(name, h, send)
		}
		return nil, failure.NewUsage("cluster.hypervisors.%s.kind = %q: this nixbench has no such kind of hypervisor, only libvirt", name, h.Kind)
	}
}
