package domainxml

import (
	"crypto/sha256"
	"fmt"

	"github.com/nixbench/nixbench/deploy/provision"
)

// Machine is all that a domain is made of.
type Machine struct {
	Cluster provision.Cluster
	Network provision.Network
	Spec    provision.Spec
	Image   string // hash of what the root was made from; the spec's may be newer
	Host    Host
	Files   Files
}

// Host is what runs the domain.
type Host struct {
	Type string // of domains: kvm, qemu, lxc, test
	Arch string // x86_64; empty: libvirt's choice
}

// Files are on the hypervisor.
type Files struct {
	Root    string
	Disks   []string
	Kernel  string
	Initrd  string
	Console string // where the serial line is logged; empty: nowhere

	Credential string // a VM's systemd credential tmpfiles.extra
	CloudInit  string // a VM's NoCloud seed
	Seed       string // a container's folder of credentials
}

// Credentials is where a container finds them.
const Credentials = "/run/host/credentials"

// DomainName is what a node's domain is called.
func DomainName(c provision.Cluster, node string) string { return c.Domain(node) }

// uuid is the same for the same words.
func deriveUUID(words ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", words))
	sum[6] = sum[6]&0x0f | 0x80 // version 8: whatever its maker wants
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// DomainUUID is that of a node's domain.
func DomainUUID(c provision.Cluster, node string) string { return deriveUUID("machine", c.ID, node) }
