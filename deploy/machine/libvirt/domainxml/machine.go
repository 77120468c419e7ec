package domainxml

import (
	"crypto/sha256"
	"fmt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Machine is the input of the function Domain, which generates the XML of a machine's domain.
type Machine struct {
	Cluster provider.Cluster
	Network provider.Network
	Spec    provider.Spec
	Image   string // hash of the image that the root disk was created from; the hive (Spec.Image) may have a newer image
	Host    Host
	Files   Files
}

// Host is the host that runs the domain.
type Host struct {
	Type string // domain type: kvm, qemu, lxc, test
	Arch string // x86_64; empty: libvirt's choice
}

// Files are paths on the hypervisor.
type Files struct {
	Root    string   // root disk
	Disks   []string // additional disks
	Kernel  string
	Initrd  string
	Console string // log of the serial console; empty: the console is not logged

	Credential string // systemd credential tmpfiles.extra
	Hostname   string // a container's systemd credential system.hostname
}

// deriveUUID returns a UUID computed from the words: the same words give the same UUID.
func deriveUUID(words ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", words))
	sum[6] = sum[6]&0x0f | 0x80 // version 8: defined by the application
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// DomainUUID returns the UUID of a node's domain.
func DomainUUID(c provider.Cluster, node string) string { return deriveUUID("machine", c.ID, node) }
