package libvirt

import (
	"fmt"
	"path"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// pool is the storage pool that contains all volumes.
type pool struct {
	*session
	p          *libvirt.StoragePool
	path       string
	ours       bool // created by nixbench
	madeFolder bool // nixbench made the folder, too
}

func (p *pool) free() { _ = p.p.Free() }

// poolMode lets QEMU's user open volumes of which it has the path.
const poolMode = "0711"

// findPool returns nil if the pool does not exist or is not active.
func (s *session) findPool() (*pool, error) {
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := s.describePool(p)
	if err == nil {
		var active bool
		if active, err = p.IsActive(); err == nil && active {
			return found, nil
		}
	}
	_ = p.Free()
	return nil, err
}

func (s *session) describePool(p *libvirt.StoragePool) (*pool, error) {
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	about, err := domainxml.ParsePool(text)
	if err != nil {
		return nil, err
	}
	if about.Type != "dir" && about.Type != "fs" && about.Type != "netfs" {
		return nil, s.h.fail("", "open the storage pool", fmt.Errorf("pool %s is of type %s, which has no files", s.h.o.Pool, about.Type),
			"name another pool in cluster.hypervisors: one of type dir, fs or netfs, or one that does not exist yet")
	}
	id, err := p.GetUUIDString()
	if err != nil {
		return nil, err
	}
	made := id == domainxml.PoolUUID(s.h.o.Pool, about.Path, domainxml.MadeFolder)
	existing := id == domainxml.PoolUUID(s.h.o.Pool, about.Path, domainxml.ExistingFolder)
	return &pool{session: s, p: p, path: about.Path, ours: made || existing, madeFolder: made}, nil
}

// makePool returns the pool; it creates and starts it if necessary.
func (s *session) makePool() (*pool, error) {
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		p, err = s.definePool(s.h.o.Pool, s.h.o.PoolPath, poolMode, domainxml.ExistingFolder)
	}
	if err != nil {
		return nil, s.h.fail("", "create the storage pool", err, "")
	}
	found, err := s.describePool(p)
	if err != nil {
		_ = p.Free()
		return nil, err
	}
	if err := s.startPool(found); err != nil {
		found.free()
		return nil, err
	}
	return found, nil
}

func (s *session) definePool(name, path, mode string, origin domainxml.FolderOrigin) (*libvirt.StoragePool, error) {
	text, err := domainxml.Pool(name, path, mode, origin)
	if err != nil {
		return nil, err
	}
	if err := s.beforeEffect("define the pool " + name); err != nil {
		return nil, err
	}
	return s.conn.StoragePoolDefineXML(text, 0)
}

// startPool starts a pool that is inactive. libvirt has no call that looks for a folder, but it starts a pool only
// if the folder exists. If it does not, the folder is made, and the pool's UUID records this.
func (s *session) startPool(p *pool) error {
	active, err := p.p.IsActive()
	if err != nil || active {
		return err
	}
	if err := s.beforeEffect("start the pool"); err != nil {
		return err
	}
	if err := p.p.Create(0); err != nil {
		if !p.ours {
			return s.h.fail("", "start the storage pool "+s.h.o.Pool, err, "")
		}
		if err := s.recordMadeFolder(p); err != nil {
			return err
		}
		if err := p.build(); err != nil {
			return err
		}
	}
	return p.p.SetAutostart(true)
}

// recordMadeFolder defines an inactive pool again, as one whose folder nixbench makes.
func (s *session) recordMadeFolder(p *pool) error {
	if p.madeFolder {
		return nil
	}
	if err := p.p.Undefine(); err != nil {
		return err
	}
	made, err := s.definePool(s.h.o.Pool, p.path, poolMode, domainxml.MadeFolder)
	if err != nil {
		return err
	}
	p.free()
	p.p, p.madeFolder = made, true
	return nil
}

// build makes the folder of an inactive pool, and starts the pool.
func (p *pool) build() error {
	if err := p.p.Build(0); err != nil {
		return p.h.fail("", "create the folder "+p.path, err, "")
	}
	return p.h.fail("", "start the storage pool in "+p.path, p.p.Create(0), "")
}

// refresh makes libvirt read the folder again. libvirt refuses while a volume is being written, so refresh
// retries for ten seconds and then continues with the old list.
func (p *pool) refresh() error {
	for since := time.Now(); ; {
		err := p.p.Refresh(0)
		if err == nil || !strings.Contains(err.Error(), "asynchronous job") {
			return err
		}
		if time.Since(since) > 10*time.Second {
			return nil // the next refresh finds what is missing
		}
		if err := p.sleep(50 * time.Millisecond); err != nil {
			return err
		}
	}
}

// volumes returns the names of all volumes.
func (p *pool) volumes() ([]string, error) { return p.p.ListStorageVolumes() }

func (p *pool) has(name string) (bool, error) {
	v, err := p.p.LookupStorageVolByName(name)
	if isNotFound(err) {
		return false, nil
	}
	if err == nil {
		_ = v.Free()
	}
	return err == nil, err
}

// pathOf returns the path of a volume.
func (p *pool) pathOf(name string) string { return path.Join(p.path, name) }

// create creates a volume. An existing one with the same name is removed first.
func (p *pool) create(v domainxml.Volume) (*libvirt.StorageVol, error) {
	if err := p.remove(v.Name); err != nil {
		return nil, err
	}
	text, err := v.XML()
	if err != nil {
		return nil, err
	}
	if err := p.beforeEffect("create " + v.Name); err != nil {
		return nil, err
	}
	return p.p.StorageVolCreateXML(text, 0)
}

// remove removes a volume. A missing volume is no error.
func (p *pool) remove(name string) error {
	v, err := p.p.LookupStorageVolByName(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = v.Free() }()
	if err := p.beforeEffect("remove " + name); err != nil {
		return err
	}
	err = p.retryWhileInUse(name, func() error { return v.Delete(0) })
	if err != nil && strings.Contains(err.Error(), "No such file") { // the file was removed, and libvirt's list is outdated
		return p.refresh()
	}
	return err
}

// retryWhileInUse calls a function that removes a volume until libvirt no longer reports that the volume is being
// written, at most for volumeTimeout.
func (s *session) retryWhileInUse(name string, remove func() error) error {
	for since := time.Now(); ; {
		err := remove()
		switch {
		case err == nil || isNotFound(err):
			return nil
		case !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "being allocated"):
			return err
		case time.Since(since) >= s.h.volumeTimeout:
			_, inner := explainError(err)
			return s.h.fail("", "remove the volume "+name, fmt.Errorf("%w: another program was still using it after %s: %w", provision.ErrInUse, s.h.volumeTimeout, inner),
				"end the program that reads or writes the volume, or restart libvirtd, then run the command again")
		}
		if err := s.sleep(min(100*time.Millisecond, s.h.volumeTimeout)); err != nil {
			return err
		}
	}
}

// available returns the free bytes of the pool.
func (p *pool) available() (uint64, error) {
	info, err := p.p.GetInfo()
	if err != nil {
		return 0, err
	}
	return info.Available, nil
}
