package deploy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
)

// footing is what machines need before they can be made: their network and images. Each
// part is made once, when somebody needs it, and nobody waits for what he does not need.
type footing struct {
	*run
	g       *ground
	keys    []provision.ImageKey
	look    func() (map[provision.ImageKey]provision.Image, error)
	reserve map[string]func() error                        // by hypervisor: its network, each time anew
	network map[string]func() error                        // the same, once
	upload  map[string]map[provision.ImageKey]func() error // by hypervisor
}

func (r *run) footing(ctx context.Context, g *ground) *footing {
	f := &footing{run: r, g: g, keys: g.Images(), reserve: map[string]func() error{}, network: map[string]func() error{}, upload: map[string]map[provision.ImageKey]func() error{}}
	f.look = sync.OnceValues(func() (map[provision.ImageKey]provision.Image, error) {
		var lacking []provision.ImageKey
		for _, k := range f.keys {
			if _, ok := g.images[k]; !ok {
				lacking = append(lacking, k)
			}
		}
		all, err := r.Machines.images(ctx, lacking)
		for k, i := range g.images {
			all[k] = i
		}
		return all, err
	})
	locks := map[string]*sync.Mutex{} // a host is prepared by one at a time, whatever runs on it
	for _, name := range sortedKeys(g.hosts) {
		one := locks[g.sites[name].Host]
		if one == nil || g.sites[name].Host == "" {
			one = &sync.Mutex{}
			locks[g.sites[name].Host] = one
		}
		prepare := func(images ...provision.Image) error {
			wait := r.Send.Wait(prepareWait(name, images))
			defer wait.End()
			one.Lock()
			defer one.Unlock()
			err := g.hosts[name].Prepare(ctx, g.Cluster, provision.Ground{Network: g.Network, Reservations: g.Reservations(name), Images: images})
			if err != nil {
				return withHypervisor(err, name, "prepare")
			}
			return nil
		}
		f.reserve[name] = func() error { return prepare() }
		f.network[name] = sync.OnceValue(f.reserve[name])
		f.upload[name] = map[provision.ImageKey]func() error{}
		for _, key := range f.keys {
			f.upload[name][key] = sync.OnceValue(func() error {
				if err := f.network[name](); err != nil {
					return err
				}
				all, err := f.look()
				if i, ok := all[key]; ok {
					return prepare(i)
				}
				return err
			})
		}
	}
	return f
}

// prepareWait says what a hypervisor is waited for.
func prepareWait(hypervisor string, images []provision.Image) event.Event {
	if len(images) == 0 {
		return event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: its network", hypervisor)}
	}
	var size uint64
	for _, i := range images {
		size += fileSize(i.Disk)
	}
	return event.Event{Phase: event.Image, Text: fmt.Sprintf("hypervisor %s: the upload of an image of %s", hypervisor, roundSize(size))}
}

// ready makes what the change needs.
func (f *footing) ready(c provision.Change) error {
	switch {
	case c.NeedsImage():
		return f.upload[c.Hypervisor][provision.ImageKey{Role: c.Role, Kind: c.Kind}]()
	case !c.Runs() || slices.Contains(f.g.Ground, c.Hypervisor):
		return f.network[c.Hypervisor]()
	}
	return nil
}

// imageOf is what the machine is made from, once ready has been asked.
func (f *footing) imageOf(c provision.Change) (provision.Image, error) {
	if !c.NeedsImage() {
		return provision.Image{}, nil
	}
	all, err := f.look()
	i, ok := all[provision.ImageKey{Role: c.Role, Kind: c.Kind}]
	if ok {
		return i, nil
	}
	return i, err
}

// images brings all images, and tells how that goes.
func (f *footing) images() {
	if len(f.keys) == 0 {
		return
	}
	f.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Image, Total: len(f.keys)})
	var failed bool
	for _, c := range f.g.Changes {
		if c.NeedsImage() && f.ready(c) != nil {
			failed = true // whose machine it is tells why
		}
	}
	f.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Image, Total: len(f.keys), Failed: failed, Text: f.summary()})
}

func (f *footing) summary() string {
	all, _ := f.look()
	var size uint64
	for _, k := range f.keys {
		size += fileSize(all[k].Disk)
	}
	if size == 0 {
		return Count(len(f.keys), "image")
	}
	return fmt.Sprintf("%s, %s", Count(len(f.keys), "image"), roundSize(size))
}
