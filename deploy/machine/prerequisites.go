package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/image"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// prerequisites prepares the networks and images that machines need before they can be created. Each network and
// image is prepared once, when the first machine needs it. A machine waits only for its own network and image.
type prerequisites struct {
	*Starter
	plan           *OpenPlan
	keys           []image.Key
	images         func() (map[image.Key]provider.Image, error)
	prepareNetwork map[string]func() error               // hypervisor → function that prepares the network of the hypervisor at its first call
	uploadImage    map[string]map[image.Key]func() error // hypervisor → image → function that uploads the image at its first call
}

// newPrerequisites returns the functions that prepare the networks and images of the plan. It prepares nothing yet.
func (s *Starter) newPrerequisites(ctx context.Context, plan *OpenPlan) *prerequisites {
	f := &prerequisites{Starter: s, plan: plan, keys: plan.Images(), prepareNetwork: map[string]func() error{}, uploadImage: map[string]map[image.Key]func() error{}}
	f.images = sync.OnceValues(func() (map[image.Key]provider.Image, error) {
		var missing []image.Key
		for _, k := range f.keys {
			if _, ok := plan.images[k]; !ok {
				missing = append(missing, k)
			}
		}
		all, err := s.Manager.images().Load(ctx, missing)
		for k, i := range plan.images {
			all[k] = i
		}
		return all, err
	})
	locks := map[string]*sync.Mutex{} // host → lock: only one Prepare runs at a time on a host
	for _, name := range slices.Sorted(maps.Keys(plan.hosts)) {
		lock := locks[plan.inventories[name].Host]
		if lock == nil || plan.inventories[name].Host == "" {
			lock = &sync.Mutex{}
			locks[plan.inventories[name].Host] = lock
		}
		prepare := func(images ...provider.Image) error {
			wait := s.Send.Wait(newPreparationEvent(name, images))
			defer wait.End()
			lock.Lock()
			defer lock.Unlock()
			err := plan.hosts[name].Prepare(ctx, plan.Cluster, provider.HostSetup{Network: plan.Network, Reservations: plan.Reservations(name), Images: images})
			if err != nil {
				return wrapHypervisorError(err, name, "prepare")
			}
			return nil
		}
		f.prepareNetwork[name] = sync.OnceValue(func() error { return prepare() })
		f.uploadImage[name] = map[image.Key]func() error{}
		for _, key := range f.keys {
			f.uploadImage[name][key] = sync.OnceValue(func() error {
				if err := f.prepareNetwork[name](); err != nil {
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

// newPreparationEvent returns the event that is sent while nixbench waits until a hypervisor has prepared its network,
// or, if there are images, until the images are uploaded.
func newPreparationEvent(hypervisor string, images []provider.Image) event.Event {
	if len(images) == 0 {
		return event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: its network", hypervisor)}
	}
	var size uint64
	for _, i := range images {
		size += image.Size(i.Disk)
	}
	return event.Event{Phase: event.Image, Text: fmt.Sprintf("hypervisor %s: the upload of an image of %s", hypervisor, image.FormatSize(size))}
}

// prepareFor prepares the network and image that the change needs.
func (f *prerequisites) prepareFor(c changes.Change) error {
	switch {
	case c.NeedsImage():
		return f.uploadImage[c.Hypervisor][c.ImageKey()]()
	case !c.Runs() || slices.Contains(f.plan.UnpreparedHosts, c.Hypervisor):
		return f.prepareNetwork[c.Hypervisor]()
	}
	return nil
}

// imageOf returns the image that the machine is created from. The caller must have called prepareFor.
func (f *prerequisites) imageOf(c changes.Change) (provider.Image, error) {
	if !c.NeedsImage() {
		return provider.Image{}, nil
	}
	all, err := f.images()
	i, ok := all[c.ImageKey()]
	if ok {
		return i, nil
	}
	return i, err
}

// prepareImages prepares all images, and sends the events of the image phase.
func (f *prerequisites) prepareImages() {
	if len(f.keys) == 0 {
		return
	}
	f.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Image, Total: len(f.keys)})
	go func() { _, _ = f.images() }() // begin to hash the images while the networks are prepared; prepareFor waits for the result
	var failed bool
	for _, c := range f.plan.Changes {
		if c.NeedsImage() && f.prepareFor(c) != nil {
			failed = true // the error itself is returned by the tasks of the machines that need the image
		}
	}
	f.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Image, Total: len(f.keys), Failed: failed, Text: f.describeImages()})
}

func (f *prerequisites) describeImages() string {
	all, _ := f.images()
	var size uint64
	for _, k := range f.keys {
		size += image.Size(all[k].Disk)
	}
	if size == 0 {
		return fleet.Count(len(f.keys), "image")
	}
	return fmt.Sprintf("%s, %s", fleet.Count(len(f.keys), "image"), image.FormatSize(size))
}
