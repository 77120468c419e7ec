package fake

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

var (
	_ provider.Provider       = (*Hypervisor)(nil)
	_ provider.Discoverer     = (*Hypervisor)(nil)
	_ provider.Console        = (*Hypervisor)(nil)
	_ provider.Power          = (*Hypervisor)(nil)
	_ provider.Observer       = (*Hypervisor)(nil)
	_ provider.Cleaner        = (*Hypervisor)(nil)
	_ provider.Checker        = (*Hypervisor)(nil)
	_ provider.ClusterRemover = (*Hypervisor)(nil)
	_ provider.Doctor         = (*Hypervisor)(nil)
)

func domainName(c provider.Cluster, node string) string { return c.Name + "-" + node }

// partsKey returns the key of a machine's disk and seed in Hypervisor.parts.
func partsKey(c provider.Cluster, node string) string { return c.ID + " " + node }

func (h *Hypervisor) Survey(ctx context.Context, c provider.Cluster, net provider.Network) (provider.Inventory, error) {
	inventory := provider.Inventory{Kind: h.Kind, CPUs: h.CPUs, Emulated: h.NoKVM}
	return inventory, h.runStep(ctx, Step{Op: "survey", Name: "read"}, func() error {
		inventory.FreeMemory, inventory.FreeDisk = h.Memory, h.Disk
		for _, d := range h.domains {
			if d.boot != 0 {
				inventory.FreeMemory -= min(d.spec.Memory, inventory.FreeMemory)
			}
		}
		for _, n := range sortedKeys(h.domains) {
			d := h.domains[n]
			if d.ours(c) {
				continue
			}
			inventory.Foreign = append(inventory.Foreign, n)
			if d.cluster.ID == c.ID {
				inventory.Copies = append(inventory.Copies, provider.Copy{Domain: n, Node: d.copyOf, MAC: d.spec.MAC})
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
		if !d.ours(c) {
			continue
		}
		f := provider.Actual{
			Node: d.spec.Node, Role: d.spec.Role, MAC: d.spec.MAC, VCPUs: d.spec.VCPUs, Memory: d.spec.Memory,
			Image: d.image, State: d.state(), Definition: d.spec.Definition(), Detached: d.boot != 0 && d.detached,
		}
		parts := h.parts[partsKey(c, d.spec.Node)]
		if _, disk := parts["disk"]; !disk {
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
	for _, other := range sortedKeys(h.networks) {
		if cidr := h.networks[other].CIDR; other != want.Name && cidr.IsValid() && cidr.Overlaps(want.CIDR) {
			return fmt.Errorf("network %s with %s and network %s with %s: %w", want.Name, want.CIDR, other, cidr, provider.ErrClash)
		}
	}
	if there == nil {
		there = &network{cluster: c.ID}
		h.networks[want.Name] = there
	}
	there.Active, there.Transient, there.CIDR, there.mode = true, false, want.CIDR, want.Mode
	return nil
}

func (h *Hypervisor) Ensure(ctx context.Context, c provider.Cluster, net provider.Network, s provider.Spec) error {
	step := func(name string) Step { return Step{Op: "ensure", Node: s.Node, Name: name} }
	machine, k := domainName(c, s.Node), partsKey(c, s.Node)
	h.mu.Lock()
	d, prepared := h.domains[machine], h.images[s.Image.Hash] != nil
	_, hasSeed := h.parts[k]["seed"]
	image, hasDisk := h.parts[k]["disk"]
	var restart, lost bool
	if d != nil {
		restart, lost = d.spec.Definition() != s.Definition(), d.boot != 0 && d.detached
	}
	h.mu.Unlock()

	missing := !hasDisk
	hasDisk = hasDisk && (d != nil || !s.NewDisks) // a disk without a domain may be of an interrupted creation
	switch {
	case d != nil && !d.ours(c):
		return h.fail(step("define"), fmt.Errorf("domain %s: %w", machine, provider.ErrForeign))
	case badXML(s) != nil:
		return h.fail(step("define"), badXML(s))
	case missing && !s.NewDisks:
		return h.fail(step("disk"), provider.ErrNoDisk)
	case !hasDisk && !prepared:
		return h.fail(step("disk"), fmt.Errorf("image %s was not prepared", s.Image.Hash))
	}
	put := func(part, what string) func() error {
		return func() error {
			if h.parts[k] == nil {
				h.parts[k] = map[string]string{}
			}
			h.parts[k][part] = what
			return nil
		}
	}
	if !hasSeed {
		if err := h.runStep(ctx, step("seed"), put("seed", "")); err != nil {
			return err
		}
	}
	if !hasDisk {
		image = s.Image.Hash
		if err := h.runStep(ctx, step("disk"), put("disk", image)); err != nil {
			return err
		}
	}
	if restart || lost && h.Kind == provider.Container {
		if err := h.runStep(ctx, step("stop"), func() error { d.stop(); return nil }); err != nil {
			return err
		}
	} else if lost {
		if err := h.runStep(ctx, step("reconnect"), func() error { d.detached = false; return nil }); err != nil {
			return err
		}
	}
	if d == nil || restart || missing {
		if err := h.runStep(ctx, step("define"), func() error {
			if d == nil {
				d = &domain{cluster: c}
				h.domains[machine] = d
			}
			d.spec, d.network, d.image = s, net.Name, image
			return nil
		}); err != nil {
			return err
		}
	}
	switch h.State(machine) {
	case provider.Running:
		return ctx.Err()
	case provider.Paused:
		return h.runStep(ctx, step("resume"), func() error { d.heldState = ""; return nil })
	}
	if err := h.runStep(ctx, step("start"), func() error {
		h.boots++
		d.boot, d.heldState = h.boots, ""
		return nil
	}); err != nil {
		return err
	}
	h.mu.Lock()
	onStart := h.onStart
	h.mu.Unlock()
	if onStart != nil {
		onStart(c, s)
	}
	return nil
}

func (h *Hypervisor) Remove(ctx context.Context, c provider.Cluster, node string) error {
	machine, k := domainName(c, node), partsKey(c, node)
	h.mu.Lock()
	d := h.domains[machine]
	if d != nil && !d.ours(c) {
		d = nil
	}
	keepReservations := h.removedClusters[c.ID]
	h.mu.Unlock()
	changes := []struct {
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
		{"reservation", func() {
			for _, n := range h.networks {
				if n.cluster == c.ID {
					n.Reservations = slices.DeleteFunc(n.Reservations, func(r provider.Reservation) bool { return r.Node == node })
				}
			}
		}},
	}
	if keepReservations {
		changes = changes[:len(changes)-1]
	}
	for _, e := range changes {
		if err := h.runStep(ctx, Step{Op: "remove", Node: node, Name: e.name}, func() error { e.change(); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// BeginClusterRemoval implements [provider.ClusterRemover]. As in the libvirt provider, Remove then keeps the
// reservations, and Clean removes the reservations with the network.
func (h *Hypervisor) BeginClusterRemoval(c provider.Cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removedClusters[c.ID] = true
}

// Check implements [provider.Checker].
func (h *Hypervisor) Check(ctx context.Context, _ provider.Cluster, _ provider.Network, s provider.Spec) error {
	if err := badXML(s); err != nil {
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

func (h *Hypervisor) Clean(ctx context.Context, c provider.Cluster) ([]provider.Remaining, error) {
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
	err := h.runStep(ctx, Step{Op: "clean", Name: "image"}, func() error {
		used, copies := map[string]bool{}, map[string]string{}
		for _, name := range sortedKeys(h.domains) {
			if d := h.domains[name]; d.copyOf != "" {
				copies[d.image] = name
			}
		}
		for k, parts := range h.parts {
			used[parts["disk"]] = true
			if id, _, _ := strings.Cut(k, " "); id == c.ID && h.images[parts["disk"]] != nil {
				used[c.ID+parts["disk"]] = true
			}
		}
		for _, hash := range sortedKeys(h.images) {
			users := h.images[hash]
			if name := copies[hash]; name != "" && users[c.ID] && len(users) == 1 && !used[c.ID+hash] {
				left = append(left, provider.Remaining{What: "image " + hash, Why: "machine " + name + " was made from it", Fix: "remove that machine"})
				continue
			}
			if !used[c.ID+hash] {
				delete(users, c.ID)
			}
			if len(users) == 0 && !used[hash] {
				delete(h.images, hash)
			}
		}
		return nil
	})
	return left, err
}

// Addresses returns the leased addresses and the reserved address of a running machine.
func (h *Hypervisor) Addresses(ctx context.Context, c provider.Cluster, node string) ([]netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.domains[domainName(c, node)]
	if d == nil || !d.ours(c) || d.boot == 0 {
		return nil, ctx.Err()
	}
	var all []netip.Addr
	n := h.networks[d.network]
	if n == nil {
		return nil, ctx.Err()
	}
	for _, l := range n.Leases {
		if l.MAC == d.spec.MAC {
			all = append(all, l.Address)
		}
	}
	for _, r := range n.Reservations {
		if r.MAC == d.spec.MAC && !slices.Contains(all, r.Address) {
			all = append(all, r.Address)
		}
	}
	return all, ctx.Err()
}

func (h *Hypervisor) ConsoleTail(ctx context.Context, c provider.Cluster, node string, max int) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.domains[domainName(c, node)]
	if d == nil || !d.ours(c) {
		return "", ctx.Err()
	}
	return d.console[len(d.console)-min(max, len(d.console)):], ctx.Err()
}

func (h *Hypervisor) ShutDown(ctx context.Context, c provider.Cluster, node string, force bool) error {
	name, d, err := h.findOwnMachine(c, node, "shut down")
	if err != nil || d == nil || h.State(name) == provider.Off {
		return err
	}
	h.mu.Lock()
	refusal, hangs := h.hangs[name]
	h.mu.Unlock()
	if hangs && !force {
		if refusal != nil {
			return h.fail(Step{Op: "power", Node: node, Name: "shut down"}, refusal)
		}
		<-ctx.Done()
		return h.fail(Step{Op: "power", Node: node, Name: "shut down"}, context.Cause(ctx))
	}
	return h.runStep(ctx, Step{Op: "power", Node: node, Name: "shut down"}, func() error { d.stop(); return nil })
}

func (h *Hypervisor) Start(ctx context.Context, c provider.Cluster, node string) error {
	step := Step{Op: "power", Node: node, Name: "start"}
	name, d, err := h.findOwnMachine(c, node, "start")
	switch {
	case err != nil:
		return err
	case d == nil:
		return h.fail(step, errors.New("there is no such machine"))
	case h.State(name) == provider.Running:
		return ctx.Err()
	case h.State(name) == provider.Paused:
		return h.runStep(ctx, step, func() error { d.heldState = ""; return nil })
	}
	if err := h.runStep(ctx, step, func() error {
		h.boots++
		d.boot, d.heldState = h.boots, ""
		return nil
	}); err != nil {
		return err
	}
	h.mu.Lock()
	onStart := h.onStart
	h.mu.Unlock()
	if onStart != nil {
		onStart(c, d.spec)
	}
	return nil
}

// findOwnMachine returns the name and the domain of a node's machine, or nil if there is none.
func (h *Hypervisor) findOwnMachine(c provider.Cluster, node, name string) (string, *domain, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	machine := domainName(c, node)
	d := h.domains[machine]
	if d != nil && !d.ours(c) {
		return machine, nil, h.fail(Step{Op: "power", Node: node, Name: name}, fmt.Errorf("domain %s: %w", machine, provider.ErrForeign))
	}
	return machine, d, nil
}

func (h *Hypervisor) Examine(context.Context, provider.Network) []provider.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.findings == nil {
		return []provider.Finding{{What: "libvirt", State: "ok", Text: "a fake", Where: h.Name}}
	}
	return slices.Clone(h.findings)
}
