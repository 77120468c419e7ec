package libvirt

import (
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// bringImage has an image in the pool, once for all clusters. Volumes cannot be renamed, so
// a volume with the suffix ok says that all of it is there. Before anything else the
// cluster says that it needs it, so that no other removes it meanwhile.
//
// Containers have a root of their own each, which is uploaded for each: libvirt's copying
// on the hypervisor takes ten times as long as uploading what is not a hole. So of their
// images there is only the word that they were checked.
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
	if err == nil && complete && p.host.kind == provision.VM { // another driver's word may be for containers
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
			// Anybody may read an image, as QEMU's user has to.
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

// mark makes an almost empty volume, unless it is there.
func (p *pool) ensureMarker(name string) error {
	there, err := p.has(name)
	if err != nil || there {
		return err
	}
	return p.uploadBytes(domainxml.Volume{Name: name, Format: "raw", Mode: "0644"}, []byte("\n"))
}

// below is what is known of a volume's backing file; empty if it has none.
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
