package libvirt

import (
	"crypto/sha256"
	"fmt"
	"regexp"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Volumes have no metadata, so their names identify their owner. docs/provisioning.md lists the names. nixbench changes only volumes that
// match a pattern, and the root disks of containers. The path of such a root disk is limited, see maxLoopPath, so its name has only digits
// of a hash of cluster and node. A survey cannot read the node from this name, but it finds the machine by the name of the machine's seed.
// The seed is created before the root disk and removed after the root disk.
var (
	machineVolumePattern = regexp.MustCompile(`^nixbench\.([0-9a-f]{8})\.(.+)\.(root|disk[0-9]+|credential|seed|hostname|console(?:\.[0-9]+)?)$`)
	imageVolumePattern   = regexp.MustCompile(`^nixbench-image-([0-9a-f]+)\.(disk|kernel|initrd|ok|for-[0-9a-f]{8})$`)
)

// usesVolumeSuffix reports whether a volume with this suffix can belong to a machine of this driver. Two drivers of one
// libvirtd can share a pool. Each driver sees the volumes of the other driver, but not the domains of the other driver.
func (h host) usesVolumeSuffix(part string) bool {
	return (part == "seed" || part == "hostname") == (h.kind == provider.Container)
}

func shortID(c provider.Cluster) string { return c.ID[:min(8, len(c.ID))] }

func machineVolumeName(c provider.Cluster, node, what string) string {
	return fmt.Sprintf("nixbench.%s.%s.%s", shortID(c), node, what)
}

func imageVolumeName(hash, what string) string {
	return fmt.Sprintf("nixbench-image-%s.%s", hash, what)
}

// maxLoopPath is libvirt's limit for the path of a loop device's file.
const maxLoopPath = 63

// rootVolumeName returns the volume name of the machine's root disk.
func (h host) rootVolumeName(c provider.Cluster, node string) string {
	if h.kind != provider.Container {
		return machineVolumeName(c, node, "root")
	}
	return fmt.Sprintf("nb.%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", c.ID, node)))[:15]
}
