package libvirt

import (
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// ensureImage uploads an image to the pool unless it is complete there; clusters share it. Volumes cannot be
// renamed, so a marker volume with the suffix ok shows that the upload is complete. The cluster's own marker
// is created first, so that no other cluster removes the image during the upload.
//
// Each container has its own copy of the root disk, which is uploaded for each container: copying a volume
// on the hypervisor takes libvirt ten times as long as uploading the non-empty parts of the file. So the
// pool has only the markers of their images, not the disks.
func (p *pool) ensureImage(c provision.Cluster, i provision.Image) error {
	fix := "build the image again"
	if _, err := checkImage(i, p.host.kind); err != nil && !p.host.test {
		return p.h.fail("", "check the image", err, fix)
	}
	op := "upload the image " + i.Hash
	if err := p.ensureMarker(imagePart(i.Hash, "for-"+shortID(c))); err != nil {
		return p.h.fail("", op, p.addFreeSpace(err), "")
	}
	complete, err := p.has(imagePart(i.Hash, "ok"))
	if err == nil && complete && p.host.kind == provision.VM { // the marker may come from the container driver, without a disk
		complete, err = p.has(imagePart(i.Hash, "disk"))
	}
	if err != nil || complete {
		return err
	}
	if p.host.kind == provision.VM {
		p.h.o.Send.Send(event.Event{Kind: event.Message, Level: "info", Text: fmt.Sprintf("hypervisor %s: %s", p.h.name, op)})
		for _, part := range []struct{ name, file string }{{"kernel", i.Kernel}, {"initrd", i.Initrd}, {"disk", i.Disk}} {
			if part.file == "" {
				continue
			}
			// Images are world-readable because QEMU's user has to read them.
			v := domainxml.Volume{Name: imagePart(i.Hash, part.name), Format: "raw", Mode: "0644"}
			if err := p.uploadPart(v, part.file); err != nil {
				return p.h.fail("", op, err, "")
			}
		}
	}
	return p.h.fail("", op, p.addFreeSpace(p.ensureMarker(imagePart(i.Hash, "ok"))), "")
}

func (p *pool) uploadPart(v domainxml.Volume, file string) error {
	if p.host.test {
		return p.uploadBytes(v, []byte("x"))
	}
	return p.uploadFile(v, file)
}

// ensureMarker creates an almost empty volume unless it exists.
func (p *pool) ensureMarker(name string) error {
	there, err := p.has(name)
	if err != nil || there {
		return err
	}
	return p.uploadBytes(domainxml.Volume{Name: name, Format: "raw", Mode: "0644"}, []byte("\n"))
}

// backingFile returns a volume's backing file; empty if it has none or libvirt cannot tell.
func backingFile(v *libvirt.StorageVol) string {
	text, err := v.GetXMLDesc(0)
	if err != nil {
		return ""
	}
	file, err := domainxml.BackingFile(text)
	if err != nil {
		return ""
	}
	return file
}
