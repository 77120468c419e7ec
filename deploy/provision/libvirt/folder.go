package libvirt

import (
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
	"github.com/nixbench/nixbench/deploy/provision/seed"
)

// libvirt has no call to create a folder with files on its host, so a temporary pool is defined in the
// folder. That pool has the folder's name, so that one left by an interrupted operation is found.

// makeFolder creates a folder in the pool with exactly these files, readable by root only.
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
		// The test driver's folders are not on disk, so the pool does not list them.
		return p.ensureMarker(name)
	}
	return p.refresh()
}

// removeFolder removes a folder of the pool with its files. A missing folder is no error.
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
		// Build also creates the folder if it is missing.
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
