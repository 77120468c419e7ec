package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Examine checks what apply needs to boot machines: the images, the hypervisors, and whether all machines of the hive can be planned,
// for which the hypervisors need enough memory.
func (m *Manager) Examine(ctx context.Context, recorded *state.State) []provider.Finding {
	if !m.HasMachines(recorded) {
		return nil
	}
	if _, err := clusterNetwork(m.Hive, recorded); err != nil {
		return []provider.Finding{provider.NewErrorFinding("hive", err)}
	}
	var out []provider.Finding
	where := allHypervisors(m.Hive, recorded)
	hosts, err := openHypervisors(m.Open, where)
	if err != nil {
		return append(out, provider.NewErrorFinding("hypervisor", err))
	}
	defer hosts.close()
	examined, _ := forHypervisors(hosts, "examine", func(name string) ([]provider.Finding, error) {
		wait := m.Send.Wait(event.Event{Phase: event.Check, Text: fmt.Sprintf("hypervisor %s: an answer from %s", name, where[name].URI)})
		defer wait.End()
		return hosts[name].Examine(ctx), nil
	})
	for _, name := range slices.Sorted(maps.Keys(where)) {
		for _, f := range examined[name] {
			f.Where = cmp.Or(f.Where, name)
			out = append(out, f)
		}
	}
	if slices.ContainsFunc(out, func(f provider.Finding) bool { return f.State == provider.FindingError }) {
		return out // the problem is already reported; a plan would find it again
	}
	plan, err := m.MakePlan(ctx, recorded, nil, false)
	if err != nil {
		return append(out, provider.NewErrorFinding("room", err))
	}
	defer plan.Close()
	created := 0
	for _, c := range plan.Changes {
		if c.Action == changes.Create {
			created++
		}
	}
	text := "there is room for " + event.Count(created, "new machine")
	return append(out, provider.Finding{What: "memory", State: provider.FindingOK, Text: text})
}
