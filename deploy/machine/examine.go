package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Examine checks what apply needs to boot machines: the images, the hypervisors, and whether the
// hypervisors have enough memory and disk space for the machines of the hive.
func (m *Manager) Examine(ctx context.Context, recorded *state.State) []provider.Finding {
	if !m.HasMachines(recorded) {
		return nil
	}
	all, err := desiredMachines(m.Hive)
	seen := observed{cluster: m.clusterIdentity(recorded), inventories: map[string]provider.Inventory{}}
	var netErr error
	seen.network, netErr = m.clusterNetwork(recorded, len(all) > 0)
	if err := errors.Join(err, netErr); err != nil {
		return []provider.Finding{newErrorFinding("hive", err)}
	}
	out := m.images().Examine(ctx)
	where := m.hypervisorConfigs(recorded, len(all) > 0)
	names := slices.Sorted(maps.Keys(where))
	// examineHypervisor returns errors as findings.
	examined, _ := forHypervisors(names, "examine", func(name string) (examination, error) {
		return m.examineHypervisor(ctx, name, where[name], seen), nil
	})
	for _, name := range names {
		for _, f := range examined[name].findings {
			f.Where = cmp.Or(f.Where, name)
			out = append(out, f)
		}
		if inventory := examined[name].inventory; inventory != nil {
			seen.inventories[name] = *inventory
		}
	}
	if len(seen.inventories) == len(where) {
		out = append(out, m.examineCapacity(all, seen.inventories, m.planOptions(seen, where, recorded))...)
	}
	return out
}

// newErrorFinding converts an error to a finding.
func newErrorFinding(what string, err error) provider.Finding {
	return provider.Finding{What: what, State: provider.FindingError, Text: err.Error(), Fix: failure.Hint(err), Err: err}
}

// examination is what was found on a hypervisor. inventory is nil if the hypervisor cannot be used.
type examination struct {
	findings  []provider.Finding
	inventory *provider.Inventory
}

// examineHypervisor connects to a hypervisor, examines the host, and surveys the hypervisor unless the examination found an error.
func (m *Manager) examineHypervisor(ctx context.Context, name string, h provider.Hypervisor, seen observed) examination {
	wait := m.Send.Wait(event.Event{Phase: event.Check, Text: fmt.Sprintf("hypervisor %s: an answer from %s", name, h.URI)})
	defer wait.End()
	p, err := m.Open(ctx, name, h)
	if err != nil {
		return examination{findings: []provider.Finding{newErrorFinding("hypervisor", err)}}
	}
	defer hypervisors{name: p}.close()
	var out examination
	if c, ok := p.(provider.Checker); ok {
		out.findings = c.Examine(ctx, seen.network)
	}
	if slices.ContainsFunc(out.findings, func(f provider.Finding) bool { return f.State == provider.FindingError }) {
		return out // the problem is already reported; a survey of the hypervisors would find it again
	}
	inventory, err := p.Survey(ctx, seen.cluster, seen.network)
	if err != nil {
		out.findings = append(out.findings, newErrorFinding("hypervisor", err))
		return out
	}
	out.inventory = &inventory
	return out
}

// examineCapacity compares the memory and disk space that new machines need with the free memory and disk space of
// the hypervisors.
func (m *Manager) examineCapacity(all []changes.Desired, inventories map[string]provider.Inventory, o changes.Options) []provider.Finding {
	plan, err := changes.Make(all, inventories, o)
	if err != nil {
		return []provider.Finding{newErrorFinding("room", err)}
	}
	out := []provider.Finding{{What: "memory", State: provider.FindingOK, Text: describeCapacity(plan)}}
	disks := map[string]uint64{}
	for _, c := range plan.Changes {
		if c.NeedsImage() {
			disks[c.Hypervisor] += c.Disk()
		}
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

func describeCapacity(p changes.Plan) string {
	n := 0
	for _, c := range p.Changes {
		if c.Action == changes.Create {
			n++
		}
	}
	if n == 0 {
		return "no machine has to be created"
	}
	return "there is room for " + fleet.Count(n, "new machine")
}
