package libvirt

import (
	"fmt"
	"path"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type pool struct {
	*session
	p    *libvirt.StoragePool
	path string
	ours bool // nixbench created the pool
}

// findPool returns the pool of all volumes; nil if the pool does not exist or is not active.
func (s *session) findPool() (*pool, error) {
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := s.describePool(p)
	if err != nil {
		return nil, err
	}
	if active, err := p.IsActive(); err != nil || !active {
		return nil, err
	}
	return found, nil
}

func (s *session) describePool(p *libvirt.StoragePool) (*pool, error) {
	s.freeAtEnd(p)
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	about := libvirtxml.StoragePool{Target: &libvirtxml.StoragePoolTarget{}}
	if err := about.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read libvirt's description of a pool: %w", err)
	}
	if about.Type != "dir" && about.Type != "fs" && about.Type != "netfs" {
		return nil, s.h.wrapError("", "open the storage pool", fmt.Errorf("pool %s is of type %s, which has no files", s.h.o.Pool, about.Type),
			"name another pool in cluster.hypervisors: one of type dir, fs or netfs, or one that does not exist yet")
	}
	id, err := p.GetUUIDString()
	if err != nil {
		return nil, err
	}
	return &pool{session: s, p: p, path: about.Target.Path, ours: id == poolUUID(s.h.o.Pool, about.Target.Path)}, nil
}

// ensurePool returns the pool of all volumes. It creates and starts the pool if necessary.
func (s *session) ensurePool() (*pool, error) {
	p, err := s.conn.LookupStoragePoolByName(s.h.o.Pool)
	if isNotFound(err) {
		p, err = s.definePool()
	}
	if err != nil {
		return nil, s.h.wrapError("", "create the storage pool", err, "")
	}
	found, err := s.describePool(p)
	if err != nil {
		return nil, err
	}
	return found, found.start()
}

func (s *session) definePool() (*libvirt.StoragePool, error) {
	text, err := poolXML(s.h.o.Pool, s.h.o.PoolPath)
	if err != nil {
		return nil, err
	}
	if err := s.beforeChange("define the pool " + s.h.o.Pool); err != nil {
		return nil, err
	}
	return s.conn.StoragePoolDefineXML(text, 0)
}

// start starts a pool that is inactive. libvirt has no call to check whether a folder exists, but it
// cannot start a pool without a folder. If the start fails, start creates the folder.
func (p *pool) start() error {
	active, err := p.p.IsActive()
	if err != nil || active {
		return err
	}
	if err := p.beforeChange("start the pool"); err != nil {
		return err
	}
	if err := p.p.Create(0); err != nil {
		if !p.ours {
			return p.h.wrapError("", "start the storage pool "+p.h.o.Pool, err, "")
		}
		if err := inOrder(func() error { return p.p.Build(0) }, func() error { return p.p.Create(0) }); err != nil {
			return p.h.wrapError("", "create the storage pool in "+p.path, err, "")
		}
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
			return nil // the next refresh updates the list
		}
		if err := p.sleep(50 * time.Millisecond); err != nil {
			return err
		}
	}
}

func (p *pool) hasVolume(name string) (bool, error) {
	v, err := p.findVolume(name)
	return v != nil, err
}

// findVolume returns a volume; nil if there is none.
func (p *pool) findVolume(name string) (*libvirt.StorageVol, error) {
	v, err := p.p.LookupStorageVolByName(name)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.freeAtEnd(v)
	return v, nil
}

func (p *pool) pathOf(name string) string { return path.Join(p.path, name) }

func (p *pool) createVolume(v volume) (*libvirt.StorageVol, error) {
	if err := p.removeVolume(v.Name); err != nil {
		return nil, err
	}
	text, err := executeTemplate("volume", v)
	if err != nil {
		return nil, err
	}
	if err := p.beforeChange("create " + v.Name); err != nil {
		return nil, err
	}
	created, err := p.p.StorageVolCreateXML(text, 0)
	if err != nil {
		return nil, err
	}
	p.freeAtEnd(created)
	return created, nil
}

func (p *pool) removeVolume(name string) error {
	v, err := p.findVolume(name)
	if err != nil || v == nil {
		return err
	}
	if err := p.beforeChange("remove " + name); err != nil {
		return err
	}
	err = p.retryWhileInUse(name, func() error { return v.Delete(0) })
	if err != nil && strings.Contains(err.Error(), "No such file") { // the file was removed, and libvirt's list is outdated
		return p.refresh()
	}
	return err
}

// retryWhileInUse calls remove, a function that removes a volume, until libvirt no longer reports that the volume is in
// use. It returns an error after volumeTimeout.
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
			return s.h.wrapError("", "remove the volume "+name, fmt.Errorf("%w: another program was still using it after %s: %w", provider.ErrInUse, s.h.volumeTimeout, inner),
				"end the program that reads or writes the volume, or restart libvirtd, then run the command again")
		}
		if err := s.sleep(min(100*time.Millisecond, s.h.volumeTimeout)); err != nil {
			return err
		}
	}
}
