package libvirt

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// maxContainerName is the maximum length of a container's name in bytes. libvirt uses the name as the host name,
// which Linux limits to 64 bytes.
const maxContainerName = 64

// Check validates the machine's XML and, if the spec has a file of the image, the image. Errors in the XML that
// only libvirt detects are reported later, when the machine is defined.
func (h *Hypervisor) Check(ctx context.Context, c provider.Cluster, net provider.Network, spec provider.Spec) error {
	return h.runOperation(ctx, func(s *session) error {
		if _, err := s.identityMethod(spec); err != nil {
			return h.wrapError("", "check the machine", err, "")
		}
		if spec.Image.Disk == "" && spec.Image.Hash == "" {
			spec.Firmware = provider.UEFI // the image is not known yet, and without it the check for a BIOS may fail wrongly
		}
		if _, err := domainxml.Domain(domainxml.Machine{Cluster: c, Network: net, Spec: spec, Host: s.host.xml}); err != nil {
			fix := ""
			if spec.XML != "" {
				fix = fmt.Sprintf("fix roles.%s.xml", spec.Role)
			}
			return h.wrapError("", "check the machine's XML", err, fix)
		}
		if name := domainxml.DomainName(c, spec.Node); s.host.kind == provider.Container && len(name) > maxContainerName {
			return h.wrapError(spec.Node, "check the machine's name", fmt.Errorf("%s has %d bytes, and the name of a container at most %d", name, len(name), maxContainerName),
				"choose a shorter meta.name, or a shorter name for the role")
		}
		if spec.Image.Disk == "" || s.host.test {
			return nil
		}
		_, err := checkImage(spec.Image, s.host.kind)
		return h.wrapError("", fmt.Sprintf("check the image of role %s", spec.Role), err, "build the image again, or set another roles."+spec.Role+".image")
	})
}
