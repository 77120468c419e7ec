package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// PoolUUID is that of a pool that we have made: pools have no place for a mark.
func PoolUUID(name, path string) string { return deriveUUID("pool", name, path) }

// Pool is the XML of a pool that is a folder.
func Pool(name, path, mode string) (string, error) {
	p := libvirtxml.StoragePool{
		Type: "dir", Name: name, UUID: PoolUUID(name, path),
		Target: &libvirtxml.StoragePoolTarget{Path: path, Permissions: &libvirtxml.StoragePoolTargetPermissions{Mode: mode}},
	}
	return p.Marshal()
}

// Volume is a file to be made in a pool.
type Volume struct {
	Name          string
	Format        string // qcow2, raw, or dir for a folder
	Capacity      uint64
	Backing       string // file below a qcow2
	BackingFormat string // format of that
	Mode          string
}

// XML of the volume. Nothing of its capacity is allocated.
func (v Volume) XML() (string, error) {
	x := libvirtxml.StorageVolume{
		Name:       v.Name,
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: v.Capacity},
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: 0},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: v.Format},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: v.Mode},
		},
	}
	if v.Format == "qcow2" {
		x.Target.Compat = "1.1"
	}
	if v.Backing != "" {
		x.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: v.Backing, Format: &libvirtxml.StorageVolumeTargetFormat{Type: v.BackingFormat},
		}
	}
	return x.Marshal()
}

// FoundPool is a pool as libvirt describes it.
type PoolInfo struct {
	Type, Path string
}

// ParsePool reads libvirt's description of a pool.
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

// Backing is the file below a volume, or empty.
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
