package libvirt

import (
	"github.com/nixbench/nixbench/deploy/machine/libvirt/domainxml"
	"github.com/nixbench/nixbench/deploy/machine/libvirt/seed"
)

// libvirt has no call that creates a folder with files, so createFolder defines a temporary storage pool in the folder.
// The temporary pool has the name of the folder, so that a later run finds it if the operation is interrupted.

// createFolder creates a folder in the pool with exactly these files, readable by root only. An existing folder is
// replaced.
func (p *pool) createFolder(name string, files []seed.File) error {
	if err := p.removeFolder(name); err != nil {
		return err
	}
	f, err := p.openFolder(name)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := f.uploadBytes(domainxml.Volume{Name: file.Name, Format: "raw", Mode: "0600"}, file.Data); err != nil {
			return p.addFreeSpace(err)
		}
	}
	if err := p.beforeChange("close the folder " + name); err != nil {
		return err
	}
	if err := inOrder(f.p.Destroy, f.p.Undefine); err != nil {
		return err
	}
	if p.host.test {
		// libvirt's test driver cannot create a folder. Create a volume with the name of the folder instead.
		return p.ensureMarker(name)
	}
	return p.refresh()
}

// openFolder returns the temporary pool of a folder. It creates the pool and the folder if they are missing.
func (p *pool) openFolder(name string) (*pool, error) {
	inner, err := p.conn.LookupStoragePoolByName(name)
	if isNotFound(err) {
		inner, err = p.definePool(name, p.pathOf(name), "0700")
	}
	if err != nil {
		return nil, err
	}
	p.freeAtEnd(inner)
	f := &pool{session: p.session, p: inner, path: p.pathOf(name), ours: true}
	active, err := inner.IsActive()
	if err == nil && !active {
		err = f.createFolderAndStart()
	}
	return f, err
}

// removeFolder removes a folder of the pool with its files. A missing folder is no error.
func (p *pool) removeFolder(name string) error {
	there, err := p.hasVolume(name)
	if err != nil {
		return err
	}
	if !there { // an interrupted operation may have left a temporary pool without its folder
		inner, err := p.conn.LookupStoragePoolByName(name)
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		p.freeAtEnd(inner)
	}
	if err := p.beforeChange("remove the folder " + name); err != nil {
		return err
	}
	f, err := p.openFolder(name)
	if err != nil {
		return err
	}
	if err := f.refresh(); err != nil {
		return err
	}
	names, err := f.p.ListStorageVolumes()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := f.removeVolume(n); err != nil {
			return err
		}
	}
	if err := inOrder(f.p.Destroy, func() error { return f.p.Delete(0) }, f.p.Undefine); err != nil {
		return err
	}
	if p.host.test {
		return p.removeVolume(name)
	}
	return p.refresh()
}
