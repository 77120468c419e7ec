package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// prerequisites prepares the networks and images that machines need before they can be created. Each network and
// image is prepared once, when the first machine needs it. A machine waits only for its own network and image.
type prerequisites struct {
	keys    []changes.ImageKey
	images  func() (map[changes.ImageKey]provider.Image, error) // loads the images at its first call
	prepare map[preparation]func() (provider.Image, error)      // functions that prepare a hypervisor at their first call
}

// preparation identifies what a hypervisor needs: the network, or the network and an image.
type preparation struct {
	hypervisor string
	image      changes.ImageKey // empty: only the network
}

func (s *Starter) newPrerequisites(ctx context.Context, plan *OpenPlan) *prerequisites {
	f := &prerequisites{keys: plan.Images(), prepare: map[preparation]func() (provider.Image, error){}}
	f.images = sync.OnceValues(func() (map[changes.ImageKey]provider.Image, error) {
		missing := slices.DeleteFunc(slices.Clone(f.keys), func(k changes.ImageKey) bool { _, ok := plan.images[k]; return ok })
		all, err := s.loadImages(ctx, missing)
		maps.Copy(all, plan.images)
		return all, err
	})
	locks := map[string]*sync.Mutex{} // host → lock: only one Prepare runs at a time on a host
	for name, h := range plan.hosts {
		host := cmp.Or(plan.inventories[name].Host, "hypervisor "+name)
		if locks[host] == nil {
			locks[host] = &sync.Mutex{}
		}
		prepare := func(phase event.Phase, what string, images ...provider.Image) error {
			wait := s.Send.Wait(event.Event{Phase: phase, Text: fmt.Sprintf("hypervisor %s: %s", name, what)})
			defer wait.End()
			locks[host].Lock()
			defer locks[host].Unlock()
			setup := provider.HostSetup{Network: plan.Network, Reservations: plan.Reservations(), Images: images}
			return wrapHypervisorError(h.Prepare(ctx, plan.Cluster, setup), name, "prepare")
		}
		network := sync.OnceValues(func() (provider.Image, error) { return provider.Image{}, prepare(event.Provision, "its network") })
		f.prepare[preparation{hypervisor: name}] = network
		for _, key := range f.keys {
			f.prepare[preparation{name, key}] = sync.OnceValues(func() (provider.Image, error) {
				if i, err := network(); err != nil {
					return i, err
				}
				all, err := f.images()
				i, ok := all[key]
				if ok {
					err = prepare(event.Image, "the upload of an image", i)
				}
				return i, err
			})
		}
	}
	return f
}

// prepareFor prepares the network and image that the change needs, and returns the image; empty if the change creates no machine.
func (f *prerequisites) prepareFor(c changes.Change) (provider.Image, error) {
	what := preparation{hypervisor: c.Hypervisor}
	if c.Creates() {
		what.image = c.ImageKey()
	}
	return f.prepare[what]()
}

func (b *Set) prepareImages() {
	total := len(b.prerequisites.keys)
	if total == 0 {
		return
	}
	b.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Image, Total: total})
	go func() { _, _ = b.prerequisites.images() }() // begin to build the images while the networks are prepared; prepareFor waits for the result
	var failed bool
	for _, c := range b.plan.Changes {
		if !c.Creates() {
			continue
		}
		if _, err := b.prerequisites.prepareFor(c); err != nil {
			failed = true // the error itself is returned by the tasks of the machines that need the image
		}
	}
	b.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Image, Total: total, Failed: failed, Text: event.Count(total, "image")})
}
