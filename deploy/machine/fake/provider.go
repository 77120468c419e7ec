// Package fake simulates a hypervisor in memory, for the tests of packages that use providers. It passes the same tests
// (libvirt/suite_test.go) as the real provider. It is deterministic: it uses neither the clock nor random numbers.
package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type Hypervisor struct {
	World
	// The exported fields must not be changed after the first operation.
	Name   string // name in errors
	Kind   provider.Kind
	Memory uint64 // total bytes
	NoKVM  bool   // the hypervisor has no KVM, so its virtual machines are emulated
}

var _ provider.Provider = (*Hypervisor)(nil)

// New returns an empty hypervisor for virtual machines, with 64 GiB of memory.
func New() *Hypervisor {
	return &Hypervisor{
		Name: "fake", Kind: provider.VM, Memory: 64 << 30,
		World: World{domains: map[string]*domain{}, parts: map[string]string{}, networks: map[string]*network{}, images: map[string]map[string]bool{}, hangs: map[string]error{}},
	}
}

func (h *Hypervisor) Survey(ctx context.Context, c provider.Cluster, net provider.Network) (provider.Inventory, error) {
	inventory := provider.Inventory{Kind: h.Kind, Emulated: h.NoKVM && h.Kind == provider.VM, FreeMemory: h.Memory}
	return inventory, h.runStep(ctx, Step{Op: "survey", Name: "read"}, func() {
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
		if n := h.networks[net.Name]; n != nil && net.Mode != provider.Bridge {
			found := n.ActualNetwork
			found.Ours = n.cluster == c.ID
			found.Reservations, found.Leases = slices.Clone(n.Reservations), slices.Clone(n.Leases)
			inventory.Network = &found
		}
	})
}

func (h *Hypervisor) machines(c provider.Cluster) []provider.Actual {
	found := map[string]provider.Actual{}
	for k := range h.parts {
		if fields := strings.Fields(k); fields[1] == c.ID {
			image, hasDisk := h.parts["disk "+machineKey(c, fields[2])]
			found[fields[2]] = provider.Actual{Node: fields[2], Image: image, State: provider.Incomplete, HasDisk: hasDisk}
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
	step, ours := Step{Op: "prepare", Name: "network"}, g.Network.Mode.Ours()
	there := network{}
	var err error
	h.do(func() {
		switch n := h.networks[g.Network.Name]; {
		case n == nil && g.Network.Mode == provider.Existing:
			err = fmt.Errorf("there is no network %s", g.Network.Name)
		case n != nil && ours && n.cluster != c.ID:
			err = fmt.Errorf("network %s: %w", g.Network.Name, provider.ErrForeign)
		case n != nil:
			there = *n
		}
	})
	if err != nil {
		return h.fail(step, err)
	}
	all := []change{
		{"network", ours && !(there.Active && there.CIDR == g.Network.CIDR), func() {
			there.cluster, there.Active, there.CIDR = c.ID, true, g.Network.CIDR
			h.networks[g.Network.Name] = &there
		}},
		{"reservations", ours && !slices.Equal(there.Reservations, g.Reservations), func() {
			h.networks[g.Network.Name].Reservations = slices.Clone(g.Reservations)
		}},
	}
	for _, i := range g.Images {
		all = append(all, change{"image", true, func() {
			if h.images[i.Hash] == nil {
				h.images[i.Hash] = map[string]bool{}
			}
			h.images[i.Hash][c.ID] = true
		}})
	}
	return h.runSteps(ctx, step, all...)
}

func (h *Hypervisor) Ensure(ctx context.Context, c provider.Cluster, net provider.Network, s provider.Spec) error {
	step := func(name string) Step { return Step{Op: "ensure", Node: s.Node, Name: name} }
	machine, seed, disk := c.MachineName(s.Node), "seed "+machineKey(c, s.Node), "disk "+machineKey(c, s.Node)
	var d *domain
	var prepared, hasSeed, hasDisk, restart bool
	var image string
	h.do(func() {
		d, prepared = h.domains[machine], h.images[s.Image.Hash] != nil
		_, hasSeed = h.parts[seed]
		image, hasDisk = h.parts[disk]
		restart = d != nil && d.spec.Definition() != s.Definition()
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
	if err := h.runSteps(ctx, step(""),
		change{"seed", !hasSeed, func() { h.parts[seed] = "" }},
		change{"disk", !hasDisk, func() { h.parts[disk] = image }},
		change{"stop", restart, func() { d.stop() }},
		change{"define", d == nil || restart || missing, func() {
			if d == nil {
				d = &domain{cluster: c}
				h.domains[machine] = d
			}
			d.spec, d.network, d.image = s, net.Name, image
		}},
	); err != nil {
		return err
	}
	return h.startDomain(ctx, step, c, s.Node)
}

func (h *Hypervisor) startDomain(ctx context.Context, step func(name string) Step, c provider.Cluster, node string) error {
	machine := c.MachineName(node)
	switch h.State(machine) {
	case provider.Running:
		return nil
	case provider.Paused:
		return h.runStep(ctx, step("resume"), func() { h.domains[machine].heldState = "" })
	}
	var onStart func(provider.Cluster, provider.Spec)
	var spec provider.Spec
	err := h.runStep(ctx, step("start"), func() {
		h.boots++
		d := h.domains[machine]
		d.boot, d.heldState = h.boots, ""
		onStart, spec = h.onStart, d.spec
	})
	if err == nil && onStart != nil {
		onStart(c, spec)
	}
	return err
}

func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	machine, k := c.MachineName(node), machineKey(c, node)
	var d *domain
	h.withDomain(machine, func(found *domain) {
		if found.isOwnedBy(c) {
			d = found
		}
	})
	return h.runSteps(ctx, Step{Op: "remove", Node: node},
		change{"stop", d != nil, func() { d.stop() }},
		change{"undefine", d != nil, func() { delete(h.domains, machine) }},
		change{"disk", true, func() { delete(h.parts, "disk "+k) }},
		change{"seed", true, func() { delete(h.parts, "seed "+k) }},
	)
}

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

func (h *Hypervisor) Close() error { return nil }

func (h *Hypervisor) Examine(context.Context) []provider.Finding {
	return []provider.Finding{{What: "fake", State: provider.FindingOK, Text: "a fake", Where: h.Name}}
}

func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster, last bool) error {
	var inUse error
	if last {
		if err := h.runStep(ctx, Step{Op: "clean", Name: "network"}, func() {
			used := map[string]string{}
			for _, name := range sortedKeys(h.domains) {
				used[h.domains[name].network] = name
			}
			for _, name := range sortedKeys(h.networks) {
				switch {
				case h.networks[name].cluster != c.ID:
				case used[name] != "":
					inUse = provider.NewInUseError(h.Name, "network "+name, "used by machine "+used[name], "remove that machine")
				default:
					delete(h.networks, name)
				}
			}
		}); err != nil {
			return err
		}
	}
	return errors.Join(inUse, h.runStep(ctx, Step{Op: "clean", Name: "image"}, func() {
		used := map[string]bool{}
		for k, image := range h.parts {
			used[image] = true
			if strings.Fields(k)[1] == c.ID {
				used[c.ID+image] = true
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
	}))
}
