package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/imagehash"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Examine checks what apply needs to boot machines: the images, the hypervisors, and whether the
// hypervisors have enough memory and disk space for the machines of the hive.
func (m *Manager) Examine(ctx context.Context, recorded *state.State) []provider.Finding {
	if !m.HasMachines(recorded) {
		return nil
	}
	var out []provider.Finding
	all, err := desiredMachines(m.Hive)
	net, netErr := m.clusterNetwork(recorded, len(all) > 0)
	if err := errors.Join(err, netErr); err != nil {
		return append(out, newErrorFinding("hive", err))
	}
	out = append(out, m.examineImages(ctx)...)
	where := m.hypervisorConfigs(recorded, len(all) > 0)
	findings := map[string][]provider.Finding{}
	inventories := map[string]provider.Inventory{}
	var mu sync.Mutex
	_ = fleet.ForAll(slices.Sorted(maps.Keys(where)), func(name string) error { // examineHypervisor returns errors as findings
		list, inventory := m.examineHypervisor(ctx, name, where[name], m.clusterIdentity(recorded), net)
		mu.Lock()
		defer mu.Unlock()
		findings[name] = list
		if inventory != nil {
			inventories[name] = *inventory
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(findings)) {
		for _, f := range findings[name] {
			if f.Where == "" {
				f.Where = name
			}
			out = append(out, f)
		}
	}
	if len(inventories) == len(where) {
		out = append(out, m.examineCapacity(ctx, recorded, all, inventories)...)
	}
	return out
}

// newErrorFinding converts an error to a finding.
func newErrorFinding(what string, err error) provider.Finding {
	return provider.Finding{What: what, State: provider.FindingError, Text: err.Error(), Fix: failure.Hint(err), Err: err}
}

func (m *Manager) examineHypervisor(ctx context.Context, name string, h state.Hypervisor, c provider.Cluster, net provider.Network) ([]provider.Finding, *provider.Inventory) {
	wait := m.Send.Wait(event.Event{Phase: event.Check, Text: fmt.Sprintf("hypervisor %s: an answer from %s", name, h.URI)})
	defer wait.End()
	p, err := m.Open(ctx, name, h)
	if err != nil {
		return []provider.Finding{newErrorFinding("libvirt", err)}, nil
	}
	defer hypervisors{name: p}.close()
	var out []provider.Finding
	if d, ok := p.(provider.Checker); ok {
		out = d.Examine(ctx, net)
	}
	if slices.ContainsFunc(out, func(f provider.Finding) bool { return f.What == "libvirt" && f.State == provider.FindingError }) {
		return out, nil // without a survey, which would fail too, because libvirt does not work
	}
	inventory, err := p.Survey(ctx, c, net)
	if err != nil {
		for _, f := range out {
			if f.State == provider.FindingError {
				return out, nil // no second finding: the findings already contain an error
			}
		}
		return append(out, newErrorFinding("libvirt", err)), nil
	}
	return out, &inventory
}

// examineCapacity compares the memory and disk space that new machines need with the free memory and disk space of
// the hypervisors.
func (m *Manager) examineCapacity(ctx context.Context, recorded *state.State, all []Desired, inventories map[string]provider.Inventory) []provider.Finding {
	net, _ := m.clusterNetwork(recorded, len(all) > 0) // Examine has already reported the error
	plan, err := Make(all, inventories, Options{Cluster: m.clusterIdentity(recorded), Network: net, Recorded: recordedMachines(recorded), Fixed: fixedAddresses(m.Hive), Closed: m.findClosedHypervisors(m.hypervisorConfigs(recorded, len(all) > 0))})
	if err != nil {
		return []provider.Finding{newErrorFinding("room", err)}
	}
	out := []provider.Finding{{What: "memory", State: provider.FindingOK, Text: describeCapacity(plan)}}
	disks, pins := map[string]uint64{}, 0
	for _, c := range plan.Changes {
		if c.NeedsImage() {
			disks[c.Hypervisor] += c.Disk()
		}
		pins += len(m.Hive.Roles[c.Role].CPUPins)
	}
	for _, name := range slices.Sorted(maps.Keys(disks)) {
		if inventories[name].FreeDisk == 0 {
			continue // the pool does not exist yet
		}
		f := provider.Finding{What: "disk", State: provider.FindingOK, Where: name,
			Text: fmt.Sprintf("new machines may grow to %s; the pool has %s left", provider.SizeText(disks[name]), provider.SizeText(inventories[name].FreeDisk))}
		if disks[name] > inventories[name].FreeDisk {
			f.State, f.Fix = provider.FindingWarning, "disks are allocated as they are written, so this may be enough; otherwise reduce roles.*.disk, or enlarge the pool"
		}
		out = append(out, f)
	}
	return out
}

func describeCapacity(p Plan) string {
	n := 0
	for _, c := range p.Changes {
		if c.Action == Create {
			n++
		}
	}
	if n == 0 {
		return "no machine has to be created"
	}
	return "there is room for " + fleet.Count(n, "new machine")
}

// examineImages returns a finding for the image of each role. An image that is not built yet is no error.
func (m *Manager) examineImages(ctx context.Context) []provider.Finding {
	var out []provider.Finding
	hashes := imagehash.Read(m.Dir)
	for _, role := range slices.Sorted(maps.Keys(m.Hive.Roles)) {
		path := m.Hive.Roles[role].Image
		f := provider.Finding{What: "image", State: provider.FindingOK, Where: "role " + role, Text: "it will be built when it is needed"}
		if path != nil {
			if i, err := loadImage(ctx, *path, hashes); err == nil {
				f.Text = fmt.Sprintf("%s, %s, %s", *path, i.Format, formatRoundedSize(fileSize(i.Disk)))
			} else if isStorePath(*path) && !durable.Exists(*path) {
				f.Text = *path + " will be built when it is needed"
			} else {
				var why *ImageError
				if errors.As(err, &why) {
					why.Role = role
				}
				f = newErrorFinding("image", err)
				f.Where = "role " + role
			}
		}
		out = append(out, f)
	}
	if durable.Exists(string(m.Dir)) {
		_ = hashes.Save() // an error is ignored, because the hashes are only a cache
	}
	return out
}
