package libvirt

import (
	"crypto/sha256"
	"fmt"
	"regexp"

	"github.com/nixbench/nixbench/deploy/provision"
)

// Volumes and seeds have no place for a mark: their names say whose they are.
// Only what has a name that these functions make is ever touched.
//
//	nixbench.CLUSTER.NODE.root         root disk
//	nixbench.CLUSTER.NODE.disk1        further disks
//	nixbench.CLUSTER.NODE.credential   what a virtual machine is told, with its host key
//	nixbench.CLUSTER.NODE.cidata       the same for cloud-init
//	nixbench.CLUSTER.NODE.seed         the same for a container: a folder
//	nixbench.CLUSTER.NODE.console      log of the serial line
//	nixbench-image-HASH.disk           and .kernel, .initrd
//	nixbench-image-HASH.ok             the image is complete
//	nixbench-image-HASH.for-CLUSTER    the cluster needs it
//
//	nb.DIGITS                          a container's root
//
// CLUSTER is the first eight digits of its id. The path of a container's root is limited, see
// maxLoop, so its name only has digits of a hash of cluster and node. Its seed is made before
// it and removed after it, and so tells that it is there.
var (
	machineVolume = regexp.MustCompile(`^nixbench\.([0-9a-f]{8})\.(.+)\.(root|disk[0-9]+|credential|cidata|seed|console(?:\.[0-9]+)?)$`)
	imageVolume   = regexp.MustCompile(`^nixbench-image-([0-9a-f]+)\.(disk|kernel|initrd|ok|for-[0-9a-f]{8})$`)
)

// makes tells whether machines of this kind have such a part. Drivers of one libvirtd can share
// a pool, and see each other's volumes there, but not each other's domains.
func (h host) hasPart(part string) bool { return (part == "seed") == (h.kind == provision.Container) }

func shortID(c provision.Cluster) string { return c.ID[:min(8, len(c.ID))] }

func machinePart(c provision.Cluster, node, what string) string {
	return fmt.Sprintf("nixbench.%s.%s.%s", shortID(c), node, what)
}

func imagePart(hash, what string) string { return fmt.Sprintf("nixbench-image-%s.%s", hash, what) }

// maxLoop is how long the path of a loop device's file may be for libvirt.
const maxLoopPath = 63

// rootPart is the machine's root disk.
func (s *session) rootPart(c provision.Cluster, node string) string {
	if s.host.kind != provision.Container {
		return machinePart(c, node, "root")
	}
	return fmt.Sprintf("nb.%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", c.ID, node)))[:15]
}
