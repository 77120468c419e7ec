package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Hypervisor is the provider for a simulated hypervisor. It implements all optional interfaces of providers.
type Hypervisor struct {
	World
	// The exported fields must not be changed after the first operation.
	Name   string // name in errors
	Kind   provider.Kind
	Memory uint64 // total bytes
	Disk   uint64 // free bytes of the pool
	NoKVM  bool   // the hypervisor has no KVM, so its virtual machines are emulated
}

var (
	_ provider.Provider   = (*Hypervisor)(nil)
	_ provider.Discoverer = (*Hypervisor)(nil)
	_ provider.Console    = (*Hypervisor)(nil)
	_ provider.Power      = (*Hypervisor)(nil)
	_ provider.Cleaner    = (*Hypervisor)(nil)
	_ provider.Checker    = (*Hypervisor)(nil)
)

// New returns an empty hypervisor for virtual machines, with 64 GiB of memory and 1 TiB of disk.
func New() *Hypervisor {
	return &Hypervisor{
		Name: "fake", Kind: provider.VM, Memory: 64 << 30, Disk: 1 << 40,
		World: World{domains: map[string]*domain{}, parts: map[string]map[string]string{}, networks: map[string]*network{}, images: map[string]map[string]bool{}, hangs: map[string]error{}},
	}
}

func (h *Hypervisor) Survey(ctx context.Context, c provider.Cluster, net provider.Network) (provider.Inventory, error) {
	inventory := provider.Inventory{Kind: h.Kind, Emulated: h.NoKVM && h.Kind == provider.VM, FreeMemory: h.Memory, FreeDisk: h.Disk}
	return inventory, h.runStep(ctx, Step{Op: "survey", Name: "read"}, func() error {
		for _, name := range sortedKeys(h.domains) {
			d := h.domains[name]
			if d.boot != 0 {
				inventory.FreeMemory -= min(d.spec.Memory, inventory.FreeMemory)
			}
			if !d.isOwnedBy(c) {
				inventory.Foreign = append(inventory.Foreign, name)
			}
		}
		inventory.Machines = h.machines(c)
		inventory.Images = append(inventory.Images, sortedKeys(h.images)...)
		for _, other := range sortedKeys(h.networks) {
			if n := h.networks[other]; other != net.Name && n.CIDR.IsValid() {
				inventory.Ranges = append(inventory.Ranges, provider.Range{Network: other, CIDR: n.CIDR, Active: n.Active})
			}
		}
		if n := h.networks[net.Name]; n != nil && net.Mode != provider.Bridge {
			found := n.ActualNetwork
			found.Ours = n.cluster == c.ID
			if !found.Ours && n.cluster != "" {
				found.Owner = "another cluster (" + n.cluster + ")"
			}
			found.Reservations, found.Leases = slices.Clone(n.Reservations), slices.Clone(n.Leases)
			inventory.Network = &found
		}
		return nil
	})
}

func (h *Hypervisor) machines(c provider.Cluster) []provider.Actual {
	found := map[string]provider.Actual{}
	for k, parts := range h.parts {
		if id, node, _ := strings.Cut(k, " "); id == c.ID {
			_, hasDisk := parts["disk"]
			found[node] = provider.Actual{Node: node, Image: parts["disk"], State: provider.Incomplete, HasDisk: hasDisk}
		}
	}
	for _, d := range h.domains {
		if !d.isOwnedBy(c) {
			continue
		}
		f := provider.Actual{
			Node: d.spec.Node, Role: d.spec.Role, MAC: d.spec.MAC, VCPUs: d.spec.VCPUs, Memory: d.spec.Memory,
			Image: d.image, State: d.state(), Definition: d.spec.Definition(),
		}
		if !found[f.Node].HasDisk {
			f.State = provider.Incomplete
		}
		for _, n := range h.networks {
			for _, r := range n.Reservations {
				if n.cluster == c.ID && r.MAC == f.MAC {
					f.Address = r.Address
				}
			}
		}
		found[f.Node] = f
	}
	var all []provider.Actual
	for _, node := range sortedKeys(found) {
		all = append(all, found[node])
	}
	return all
}

func (h *Hypervisor) Prepare(ctx context.Context, c provider.Cluster, g provider.HostSetup) error {
	step := func(name, detail string) Step { return Step{Op: "prepare", Name: name, Detail: detail} }
	if err := h.runStep(ctx, step("network", ""), func() error { return h.makeNetwork(c, g.Network) }); err != nil {
		return err
	}
	if g.Network.Mode.Ours() {
		if err := h.runStep(ctx, step("reservations", ""), func() error {
			h.networks[g.Network.Name].Reservations = slices.Clone(g.Reservations)
			return nil
		}); err != nil {
			return err
		}
	}
	for _, i := range g.Images {
		if err := h.runStep(ctx, step("image", i.Hash), func() error {
			if h.images[i.Hash] == nil {
				h.images[i.Hash] = map[string]bool{}
			}
			h.images[i.Hash][c.ID] = true
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// makeNetwork creates or starts the network of the cluster. It returns an error if the network belongs to another cluster.
func (h *Hypervisor) makeNetwork(c provider.Cluster, want provider.Network) error {
	there := h.networks[want.Name]
	switch {
	case want.Mode == provider.Bridge:
		return nil
	case want.Mode == provider.Existing && there == nil:
		return fmt.Errorf("there is no network %s", want.Name)
	case want.Mode == provider.Existing:
		return nil
	case there != nil && there.cluster != c.ID:
		return fmt.Errorf("network %s: %w", want.Name, provider.ErrForeign)
	}
	if there == nil {
		there = &network{cluster: c.ID}
		h.networks[want.Name] = there
	}
	there.Active, there.CIDR = true, want.CIDR
	return nil
}

func (h *Hypervisor) Ensure(ctx context.Context, c provider.Cluster, net provider.Network, s provider.Spec) error {
	step := func(name string) Step { return Step{Op: "ensure", Node: s.Node, Name: name} }
	machine, k := c.MachineName(s.Node), partsKey(c, s.Node)
	var d *domain
	var prepared, hasSeed, hasDisk, restart bool
	var image string
	h.do(func() {
		d, prepared = h.domains[machine], h.images[s.Image.Hash] != nil
		_, hasSeed = h.parts[k]["seed"]
		image, hasDisk = h.parts[k]["disk"]
		if d != nil {
			restart = d.spec.Definition() != s.Definition()
		}
	})
	missing := !hasDisk
	hasDisk = hasDisk && (d != nil || !s.NewDisks) // a disk without a domain may be from an interrupted creation
	switch {
	case d != nil && !d.isOwnedBy(c):
		return h.fail(step("define"), fmt.Errorf("domain %s: %w", machine, provider.ErrForeign))
	case badXML(s) != nil:
		return h.fail(step("define"), badXML(s))
	case missing && !s.NewDisks:
		return h.fail(step("disk"), provider.ErrNoDisk)
	case !hasDisk && !prepared:
		return h.fail(step("disk"), fmt.Errorf("image %s was not prepared", s.Image.Hash))
	}
	if !hasDisk {
		image = s.Image.Hash
	}
	for _, change := range []struct {
		name   string
		needed bool
		do     func()
	}{
		{"seed", !hasSeed, func() { h.putPart(k, "seed", "") }},
		{"disk", !hasDisk, func() { h.putPart(k, "disk", image) }},
		{"stop", restart, func() { d.stop() }},
		{"define", d == nil || restart || missing, func() {
			if d == nil {
				d = &domain{cluster: c}
				h.domains[machine] = d
			}
			d.spec, d.network, d.image = s, net.Name, image
		}},
	} {
		if change.needed {
			if err := h.runStep(ctx, step(change.name), func() error { change.do(); return nil }); err != nil {
				return err
			}
		}
	}
	return h.startDomain(ctx, step, c, s.Node)
}

func (w *World) putPart(machine, part, content string) {
	if w.parts[machine] == nil {
		w.parts[machine] = map[string]string{}
	}
	w.parts[machine][part] = content
}

// startDomain starts or resumes the machine of a node.
func (h *Hypervisor) startDomain(ctx context.Context, step func(name string) Step, c provider.Cluster, node string) error {
	machine := c.MachineName(node)
	switch h.State(machine) {
	case provider.Running:
		return ctx.Err()
	case provider.Paused:
		return h.runStep(ctx, step("resume"), func() error { h.domains[machine].heldState = ""; return nil })
	}
	var onStart func(provider.Cluster, provider.Spec)
	var spec provider.Spec
	err := h.runStep(ctx, step("start"), func() error {
		h.boots++
		d := h.domains[machine]
		d.boot, d.heldState = h.boots, ""
		onStart, spec = h.onStart, d.spec
		return nil
	})
	if err == nil && onStart != nil {
		onStart(c, spec)
	}
	return err
}

func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	machine, k := c.MachineName(node), partsKey(c, node)
	var d *domain
	h.withDomain(machine, func(found *domain) {
		if found.isOwnedBy(c) {
			d = found
		}
	})
	for _, e := range []struct {
		name   string
		change func()
	}{
		{"stop", func() {
			if d != nil {
				d.stop()
			}
		}},
		{"undefine", func() {
			if d != nil {
				delete(h.domains, machine)
			}
		}},
		{"disk", func() { delete(h.parts[k], "disk") }},
		{"seed", func() { delete(h.parts, k) }},
	} {
		if err := h.runStep(ctx, Step{Op: "remove", Node: node, Name: e.name}, func() error { e.change(); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Check implements [provider.Checker].
func (h *Hypervisor) Check(ctx context.Context, c provider.Cluster, _ provider.Network, s provider.Spec) error {
	err := badXML(s)
	if name := c.MachineName(s.Node); h.Kind == provider.Container && len(name) > 64 {
		err = fmt.Errorf("%s has %d bytes, which is too long for a container", name, len(name))
	}
	if err != nil {
		return h.fail(Step{Op: "check", Name: "define"}, err)
	}
	return ctx.Err()
}

func badXML(s provider.Spec) error {
	if s.XML != "" && !strings.Contains(s.XML, "<domain") {
		return fmt.Errorf("role %s: the option xml is not a <domain>", s.Role)
	}
	return nil
}

func (h *Hypervisor) Examine(context.Context) []provider.Finding {
	return []provider.Finding{{What: "fake", State: provider.FindingOK, Text: "a fake", Where: h.Name}}
}

func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster, _ []string) ([]provider.Remaining, error) {
	var left []provider.Remaining
	if err := h.runStep(ctx, Step{Op: "clean", Name: "network"}, func() error {
		used := map[string]string{}
		for _, name := range sortedKeys(h.domains) {
			used[h.domains[name].network] = name
		}
		for _, name := range sortedKeys(h.networks) {
			switch {
			case h.networks[name].cluster != c.ID:
			case used[name] != "":
				left = append(left, provider.Remaining{What: "network " + name, Why: "used by machine " + used[name], Fix: "remove that machine"})
			default:
				delete(h.networks, name)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return left, h.runStep(ctx, Step{Op: "clean", Name: "image"}, func() error {
		used := map[string]bool{}
		for k, parts := range h.parts {
			used[parts["disk"]] = true
			if id, _, _ := strings.Cut(k, " "); id == c.ID {
				used[c.ID+parts["disk"]] = true
			}
		}
		for _, hash := range sortedKeys(h.images) {
			if !used[c.ID+hash] {
				delete(h.images[hash], c.ID)
			}
			if len(h.images[hash]) == 0 && !used[hash] {
				delete(h.images, hash)
			}
		}
		return nil
	})
}
