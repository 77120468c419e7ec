package libvirt

import (
	"fmt"
	"path"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// pool is the storage pool that contains all volumes.
type pool struct {
	*session
	p    *libvirt.StoragePool
	path string
	ours bool // created by nixbench
}

func (p *pool) free() { _ = p.p.Free() }

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
			"name another pool in cluster.hypervisors: one of type dir, fs or netfs, or one that is to be made")
	}
	id, err := p.GetUUIDString()
	if err != nil {
		return nil, err
	}
	return &pool{session: s, p: p, path: about.Path, ours: id == domainxml.PoolUUID(s.h.o.Pool, about.Path)}, nil
}

// makePool returns the pool; it creates and starts it if necessary.
func (s *session) makePool() (*pool, error) {
	s.h.storage.Lock()
	defer s.h.storage.Unlock()
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		if err := s.beforeEffect("define the pool"); err != nil {
			return nil, err
		}
		var text string
		if text, err = domainxml.Pool(s.h.o.Pool, s.h.o.PoolPath, "0711"); err != nil {
			return nil, err
		}
		p, err = s.conn.StoragePoolDefineXML(text, 0)
	}
	if err != nil {
		return nil, s.h.fail("", "make the storage pool", err, "")
	}
	found, err := s.describePool(p)
	if err == nil {
		err = s.startPool(found)
	}
	if err != nil {
		_ = p.Free()
		return nil, err
	}
	return found, nil
}

func (s *session) startPool(p *pool) error {
	active, err := p.p.IsActive()
	if err != nil || active {
		return err
	}
	if err := s.beforeEffect("start the pool"); err != nil {
		return err
	}
	if p.ours {
		if err := p.p.Build(0); err != nil {
			return s.h.fail("", "make the folder "+p.path, err, "")
		}
	}
	if err := p.p.Create(0); err != nil {
		return s.h.fail("", "start the storage pool "+s.h.o.Pool, err, "")
	}
	return p.p.SetAutostart(true)
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

// remove removes a volume, and waits while it is being written. A missing volume is no error.
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
	for {
		err := v.Delete(0)
		if err == nil || isNotFound(err) {
			return nil
		}
		if !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "being allocated") {
			// The file was removed and libvirt's list is outdated.
			if strings.Contains(err.Error(), "No such file") {
				return p.refresh()
			}
			return err
		}
		if err := p.sleep(100 * time.Millisecond); err != nil {
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
