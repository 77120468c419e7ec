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
	f, err := p.openFolder(name)
	if err != nil {
		return err
	}
	defer f.free()
	for _, file := range files {
		if err := f.uploadBytes(domainxml.Volume{Name: file.Name, Format: "raw", Mode: "0600"}, file.Data); err != nil {
			return p.addFreeSpace(err)
		}
	}
	if err := p.beforeEffect("close the folder " + name); err != nil {
		return err
	}
	if err := f.p.Destroy(); err != nil {
		return err
	}
	if err := f.p.Undefine(); err != nil {
		return err
	}
	if p.host.test {
		// The test driver's folders are not on disk, so the pool does not list them.
		return p.ensureMarker(name)
	}
	return p.refresh()
}

// openFolder returns the temporary pool of a folder. It creates pool and folder if they are missing.
func (p *pool) openFolder(name string) (*pool, error) {
	inner, err := p.conn.LookupStoragePoolByName(name)
	if isNotFound(err) {
		inner, err = p.definePool(name, p.pathOf(name), "0700", domainxml.MadeFolder)
	}
	if err != nil {
		return nil, err
	}
	f := &pool{session: p.session, p: inner, path: p.pathOf(name), ours: true, madeFolder: true}
	active, err := inner.IsActive()
	if err == nil && !active {
		err = f.build()
	}
	if err != nil {
		f.free()
		return nil, err
	}
	return f, nil
}

// removeFolder removes a folder of the pool with its files. A missing folder is no error.
func (p *pool) removeFolder(name string) error {
	there, err := p.has(name)
	if err != nil {
		return err
	}
	if !there { // an interrupted operation may have left the temporary pool
		inner, err := p.conn.LookupStoragePoolByName(name)
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = inner.Free()
	}
	if err := p.beforeEffect("remove the folder " + name); err != nil {
		return err
	}
	f, err := p.openFolder(name)
	if err != nil {
		return err
	}
	defer f.free()
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
	if err := f.p.Destroy(); err != nil {
		return err
	}
	if err := f.p.Delete(0); err != nil {
		return err
	}
	if err := f.p.Undefine(); err != nil {
		return err
	}
	if p.host.test {
		return p.remove(name)
	}
	return p.refresh()
}
