package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// hypervisorKinds maps a value of cluster.hypervisors.<name>.kind to the constructor of its provider, which manages machines on
// the hypervisor. A provider connects to the hypervisor with the first request.
var hypervisorKinds = map[string]func(name string, h provider.Hypervisor, send event.Sink) (provider.Provider, error){
	"libvirt": openLibvirt,
}

// newHypervisorOpener returns a function that opens hypervisors. An opened hypervisor sends its events to send.
func newHypervisorOpener(send event.Sink) machine.Opener {
	return func(_ context.Context, name string, h provider.Hypervisor) (provider.Provider, error) {
		open := hypervisorKinds[cmp.Or(h.Kind, "libvirt")]
		if open == nil {
			return nil, failure.WithKind(failure.Usage, fmt.Errorf("cluster.hypervisors.%s.kind = %q: this nixbench has no such kind of hypervisor, only %s",
				name, h.Kind, strings.Join(slices.Sorted(maps.Keys(hypervisorKinds)), ", ")))
		}
		return open(name, h, send)
	}
}
