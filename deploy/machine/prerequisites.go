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
	"github.com/nixbench/nixbench/deploy/machine/image"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// prerequisites prepares the networks and images that machines need before they can be created. Each network and
// image is prepared once, when the first machine needs it. A machine waits only for its own network and image.
type prerequisites struct {
	*Starter
	plan    *OpenPlan
	keys    []image.Key
	images  func() (map[image.Key]provider.Image, error) // loads the images at its first call
	prepare map[preparation]func() error                 // functions that prepare a hypervisor at their first call
}

// preparation identifies what a hypervisor needs: the network, or the network and an image.
type preparation struct {
	hypervisor string
	image      image.Key // empty: only the network
}

func (s *Starter) newPrerequisites(ctx context.Context, plan *OpenPlan) *prerequisites {
	f := &prerequisites{Starter: s, plan: plan, keys: plan.Images(), prepare: map[preparation]func() error{}}
	f.images = sync.OnceValues(func() (map[image.Key]provider.Image, error) {
		missing := slices.DeleteFunc(slices.Clone(f.keys), func(k image.Key) bool { _, ok := plan.images[k]; return ok })
		all, err := s.Manager.images().Load(ctx, missing)
		maps.Copy(all, plan.images)
		return all, err
	})
	locks := map[string]*sync.Mutex{} // host → lock: only one Prepare runs at a time on a host
	for name, h := range plan.hosts {
		host := cmp.Or(plan.inventories[name].Host, "hypervisor "+name)
		if locks[host] == nil {
			locks[host] = &sync.Mutex{}
		}
		prepare := func(images ...provider.Image) error {
			what := event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: its network", name)}
			if len(images) > 0 {
				what = event.Event{Phase: event.Image, Text: fmt.Sprintf("hypervisor %s: the upload of an image", name)}
			}
			wait := s.Send.Wait(what)
			defer wait.End()
			locks[host].Lock()
			defer locks[host].Unlock()
			err := h.Prepare(ctx, plan.Cluster, provider.HostSetup{Network: plan.Network, Reservations: plan.Reservations(), Images: images})
			if err != nil {
				return wrapHypervisorError(err, name, "prepare")
			}
			return nil
		}
		network := sync.OnceValue(func() error { return prepare() })
		f.prepare[preparation{hypervisor: name}] = network
		for _, key := range f.keys {
			f.prepare[preparation{name, key}] = sync.OnceValue(func() error {
				if err := network(); err != nil {
					return err
				}
				all, err := f.images()
				if i, ok := all[key]; ok {
					return prepare(i)
				}
				return err
			})
		}
	}
	return f
}

func (f *prerequisites) prepareFor(c changes.Change) error {
	if c.Creates() {
		return f.prepare[preparation{c.Hypervisor, c.ImageKey()}]()
	}
	return f.prepare[preparation{hypervisor: c.Hypervisor}]()
}

// imageOf returns the image that the machine is created from. The caller must have called prepareFor.
func (f *prerequisites) imageOf(c changes.Change) (provider.Image, error) {
	if !c.Creates() {
		return provider.Image{}, nil
	}
	all, err := f.images()
	i, ok := all[c.ImageKey()]
	if ok {
		return i, nil
	}
	return i, err
}

func (f *prerequisites) prepareImages() {
	if len(f.keys) == 0 {
		return
	}
	f.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Image, Total: len(f.keys)})
	go func() { _, _ = f.images() }() // begin to build the images while the networks are prepared; prepareFor waits for the result
	var failed bool
	for _, c := range f.plan.Changes {
		if c.Creates() && f.prepareFor(c) != nil {
			failed = true // the error itself is returned by the tasks of the machines that need the image
		}
	}
	f.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Image, Total: len(f.keys), Failed: failed, Text: event.Count(len(f.keys), "image")})
}
