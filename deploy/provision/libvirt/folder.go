package libvirt

import (
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
	"github.com/nixbench/nixbench/deploy/provision/seed"
)

// A folder with files is a pool for a moment: libvirt has no other way to make one on its
// host. The name of that pool is the folder's, so that one that was cut off is found.

// makeFolder makes a folder in the pool, with these files and no others. They belong to
// root, and nobody else reads them.
func (p *pool) makeFolder(name string, files []seed.File) error {
	if err := p.removeFolder(name); err != nil {
		return err
	}
	text, err := domainxml.Pool(name, p.pathOf(name), "0700")
	if err != nil {
		return err
	}
	if err := p.beforeEffect("make the folder " + name); err != nil {
		return err
	}
	inner, err := p.conn.StoragePoolDefineXML(text, 0)
	if err != nil {
		return err
	}
	f := &pool{session: p.session, p: inner, path: p.pathOf(name), ours: true}
	defer f.free()
	if err := inner.Build(0); err != nil {
		return err
	}
	if err := inner.Create(0); err != nil {
		return err
	}
	for _, file := range files {
		if err := f.uploadBytes(domainxml.Volume{Name: file.Name, Format: "raw", Mode: "0600"}, file.Data); err != nil {
			return p.addFreeSpace(err)
		}
	}
	if err := p.beforeEffect("close the folder " + name); err != nil {
		return err
	}
	if err := inner.Destroy(); err != nil {
		return err
	}
	if err := inner.Undefine(); err != nil {
		return err
	}
	if p.host.test {
		// Folders of the test driver are not on any disk, where the pool would see them.
		return p.ensureMarker(name)
	}
	return p.refresh()
}

// removeFolder removes a folder of the pool and its files; none is no error.
func (p *pool) removeFolder(name string) error {
	inner, err := p.conn.LookupStoragePoolByName(name)
	open := err == nil
	if err != nil && !isNotFound(err) {
		return err
	}
	there, err := p.has(name)
	if err != nil {
		return err
	}
	if !open && !there {
		return nil
	}
	if err := p.beforeEffect("remove the folder " + name); err != nil {
		return err
	}
	if !open {
		text, err := domainxml.Pool(name, p.pathOf(name), "0700")
		if err != nil {
			return err
		}
		if inner, err = p.conn.StoragePoolDefineXML(text, 0); err != nil {
			return err
		}
	}
	f := &pool{session: p.session, p: inner, path: p.pathOf(name), ours: true}
	defer f.free()
	if active, err := inner.IsActive(); err != nil {
		return err
	} else if !active {
		// Also where the folder was never made.
		if err := inner.Build(0); err != nil {
			return err
		}
		if err := inner.Create(0); err != nil {
			return err
		}
	}
	if err := f.refresh(); err != nil {
		return err
	}
	names, err := f.volumes()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := f.remove(n); err != nil {
			return err
		}
	}
	if err := inner.Destroy(); err != nil {
		return err
	}
	if err := inner.Delete(0); err != nil {
		return err
	}
	if err := inner.Undefine(); err != nil {
		return err
	}
	if p.host.test {
		return p.remove(name)
	}
	return p.refresh()
}
