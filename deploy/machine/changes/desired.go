package changes

import "github.com/nixbench/nixbench/deploy/machine/provider"

// Desired is the desired state of one node's machine in the hive. In its spec, the MAC and the address are missing, because [Make]
// chooses them. The image and the keys are missing, too, because they are added when the plan is executed.
type Desired struct {
	provider.Spec
	On []string // names of hypervisors on which the machine may be created; empty: any
}

// specAt returns the spec of the machine with this place and this image.
func (w Desired) specAt(p Place, image provider.Image) provider.Spec {
	s := w.Spec
	s.MAC, s.Address, s.Image = p.MAC, p.Address, image
	return s
}
