package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// PoolUUID returns the UUID of a pool that nixbench creates. The UUID shows that nixbench owns the pool, because pools have no metadata.
func PoolUUID(name, path string) string { return deriveUUID("pool", name, path) }

// Pool returns the XML of a pool of type dir.
func Pool(name, path, mode string) (string, error) {
	return execute("pool", struct{ Name, UUID, Path, Mode string }{name, PoolUUID(name, path), path, mode})
}

// Volume describes a volume to be created in a pool.
type Volume struct {
	Name          string
	Format        string // qcow2, raw, or dir for a folder
	Capacity      uint64 // bytes
	Backing       string // path of a qcow2's backing file
	BackingFormat string // format of the backing file
	Mode          string
}

// XML returns the volume's XML.
func (v Volume) XML() (string, error) { return execute("volume", v) }

// PoolInfo is a pool as libvirt describes it.
type PoolInfo struct {
	Type, Path string
}

// ParsePool parses libvirt's description of a pool.
func ParsePool(text string) (PoolInfo, error) {
	var p libvirtxml.StoragePool
	if err := p.Unmarshal(text); err != nil {
		return PoolInfo{}, fmt.Errorf("read libvirt's description of a pool: %w", err)
	}
	f := PoolInfo{Type: p.Type}
	if p.Target != nil {
		f.Path = p.Target.Path
	}
	return f, nil
}

// BackingFile returns the path of a volume's backing file; empty if the volume has none.
func BackingFile(text string) (string, error) {
	var v libvirtxml.StorageVolume
	if err := v.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read libvirt's description of a volume: %w", err)
	}
	if v.BackingStore == nil {
		return "", nil
	}
	return v.BackingStore.Path, nil
}
