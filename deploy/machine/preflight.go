package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// preflight checks, before any machine is created, that the images in the hive exist and that the hypervisors can run
// the planned machines. If several machines have the same error, it reports the error once.
func (m *Manager) preflight(ctx context.Context, g *OpenPlan) error {
	images := map[string]provider.Image{}
	failed := map[string]error{}
	for _, c := range g.Changes {
		if _, seen := images[c.Role]; c.NeedsImage() && !seen {
			var err error
			if images[c.Role], err = m.images().Find(c.Role); err != nil {
				failed[c.Role] = err
			}
		}
	}
	type group struct{ role, hypervisor string }
	checked := map[group]bool{} // roles whose machines were checked on a hypervisor, so that each role is checked there once
	reported := map[string]bool{}
	var errs []error
	for _, role := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, failed[role])
	}
	for _, c := range g.Changes {
		host, ok := g.hosts[c.Hypervisor].(provider.Checker)
		if !ok || c.Action == changes.Remove || c.Action == changes.Keep || failed[c.Role] != nil {
			continue
		}
		disk := images[c.Role]
		if one := (group{c.Role, c.Hypervisor}); checked[one] {
			disk.Disk = ""
		} else {
			checked[one] = true
		}
		err := host.Check(ctx, g.Cluster, g.Network, c.Spec(disk, provider.Identity{}))
		if err == nil || reported[err.Error()] {
			continue
		}
		reported[err.Error()] = true
		errs = append(errs, wrapHypervisorError(err, c.Hypervisor, fmt.Sprintf("check %s", c.Node)))
	}
	return errors.Join(errs...)
}
