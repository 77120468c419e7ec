package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/provision"
)

// preflight looks, before anything is made, at what the plan's machines are to be made from: that the images which the hive
// names are there, and that hypervisors can make such machines. Of what is the same for all machines of a
// role it is said once.
func (m *Machines) preflight(ctx context.Context, g *machinePlan) error {
	images := map[string]provision.Image{}
	failed := map[string]error{}
	for _, c := range g.Changes {
		if path := m.Hive.Roles[c.Role].Image; c.NeedsImage() && path != nil && failed[c.Role] == nil && images[c.Role].Disk == "" {
			if !exists(*path) && isStorePath(*path) {
				continue // it is built when it is needed
			}
			i, err := findImage(*path)
			if images[c.Role] = i; err != nil {
				failed[c.Role] = withRole(err, c.Role)
			}
		}
	}
	type group struct{ role, hypervisor string }
	looked := map[group]bool{} // at the image
	said := map[string]bool{}
	var errs []error
	for _, role := range sortedKeys(failed) {
		errs = append(errs, failed[role])
	}
	for _, c := range g.Changes {
		host, ok := g.providers[c.Hypervisor].(provision.Checker)
		if !ok || c.Action == provision.Remove || c.Action == provision.Keep || failed[c.Role] != nil {
			continue
		}
		image := images[c.Role]
		if one := (group{c.Role, c.Hypervisor}); looked[one] {
			image.Disk = ""
		} else {
			looked[one] = true
		}
		err := host.Check(ctx, g.Cluster, g.Network, c.Spec(image, provision.Identity{}))
		if err == nil || said[err.Error()] {
			continue
		}
		said[err.Error()] = true
		errs = append(errs, located(err, c.Hypervisor, fmt.Sprintf("check %s", c.Node)))
	}
	return errors.Join(errs...)
}
