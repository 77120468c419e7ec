package libvirt

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// maxContainer is how long a container's name may be: libvirt makes it the container's host name, and
// Linux has 64 bytes for that.
const maxContainerName = 64

// Check finds out whether the machine's XML can be written, and whether its image, if it names a file, is
// one for machines of this kind. What only libvirt itself finds wrong, it says when the machine is defined.
func (h *Hypervisor) Check(ctx context.Context, c provision.Cluster, net provision.Network, spec provision.Spec) error {
	return h.run(ctx, func(s *session) error {
		if _, err := s.identityMethod(spec); err != nil {
			return h.fail("", "check the machine", err, "")
		}
		if spec.Image.Disk == "" && spec.Image.Hash == "" {
			spec.Firmware = provision.UEFI // whether it can do without is known with the image
		}
		if _, err := domainxml.Domain(domainxml.Machine{Cluster: c, Network: net, Spec: spec, Host: s.host.xml}); err != nil {
			fix := ""
			if spec.XML != "" {
				fix = fmt.Sprintf("mend roles.%s.xml", spec.Role)
			}
			return h.fail("", "check the machine's XML", err, fix)
		}
		if name := domainxml.DomainName(c, spec.Node); s.host.kind == provision.Container && len(name) > maxContainerName {
			return h.fail(spec.Node, "check the machine's name", fmt.Errorf("%s has %d bytes, and the name of a container at most %d", name, len(name), maxContainerName),
				"choose a shorter meta.name, or a shorter name for the role")
		}
		if spec.Image.Disk == "" || s.host.test {
			return nil
		}
		_, err := checkImage(spec.Image, s.host.kind)
		return h.fail("", fmt.Sprintf("check the image of role %s", spec.Role), err, "build the image again, or set another roles."+spec.Role+".image")
	})
}
