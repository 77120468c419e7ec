package libvirt

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func (h *Hypervisor) Prepare(ctx context.Context, c provider.Cluster, g provider.HostSetup) error {
	return h.runOperation(ctx, func(s *session) error {
		if err := s.prepareNetwork(c, g.Network, g.Reservations); err != nil {
			return h.wrapError("", "prepare the network "+g.Network.Name, err, "")
		}
		p, err := s.ensurePool()
		if err != nil {
			return h.wrapError("", "prepare the storage pool "+h.o.Pool, err, "")
		}
		for _, i := range g.Images {
			op := "upload the image " + i.Hash
			if err := p.ensureImage(c, i, op); err != nil {
				return h.wrapError("", op, err, "")
			}
		}
		return nil
	})
}

// ensureImage uploads an image to the pool, unless the pool has the complete image. Clusters share images. Before the upload,
// ensureImage creates a marker volume for the cluster, so that no other cluster removes the image during the upload. After the upload,
// it creates the marker volume ok, which means that the image is complete: libvirt cannot rename a volume.
//
// For an image for containers it creates only the markers. The root disk is uploaded again for each container, because
// copying a volume takes libvirt ten times as long as the upload of the non-empty parts of the file.
func (p *pool) ensureImage(c provider.Cluster, i provider.Image, op string) error {
	if err := p.ensureMarker(imageVolumeName(i.Hash, "for-"+shortID(c))); err != nil {
		return err
	}
	complete, err := p.hasVolume(imageVolumeName(i.Hash, "ok"))
	if err == nil && complete && p.host.kind == provider.VM { // for containers, the marker ok exists without a disk
		complete, err = p.hasVolume(imageVolumeName(i.Hash, "disk"))
	}
	if err != nil || complete {
		return err
	}
	if p.host.kind == provider.VM {
		p.h.send.Send(event.Event{Kind: event.Message, Level: "info", Text: fmt.Sprintf("hypervisor %s: %s", p.h.name, op)})
		for _, part := range []struct{ name, file string }{{"kernel", i.Kernel}, {"initrd", i.Initrd}, {"disk", i.Disk}} {
			if part.file == "" {
				continue
			}
			// Images are readable by all users, because the user that runs QEMU has to read them.
			v := volume{Name: imageVolumeName(i.Hash, part.name), Format: "raw", Mode: "0644"}
			if p.host.test {
				err = p.uploadBytes(v, []byte("x"))
			} else {
				err = p.uploadFile(v, part.file)
			}
			if err != nil {
				return err
			}
		}
	}
	return p.ensureMarker(imageVolumeName(i.Hash, "ok"))
}

func (p *pool) ensureMarker(name string) error {
	there, err := p.hasVolume(name)
	if err != nil || there {
		return err
	}
	return p.uploadBytes(volume{Name: name, Format: "raw", Mode: "0644"}, []byte("\n"))
}
