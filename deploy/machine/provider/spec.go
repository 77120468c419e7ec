package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Cluster identifies the owner of machines. The id is generated once and kept in the state, so that two
// clusters with the same name do not change each other's machines.
type Cluster struct {
	Name string
	ID   string // 16 hex digits
}

func (c Cluster) MachineName(node string) string { return c.Name + "-" + node }

// Hypervisor contains the settings of a hypervisor in the hive.
type Hypervisor struct {
	Kind     string `json:"kind,omitempty"` // the kind of provider; empty: libvirt
	URI      string `json:"uri"`
	Pool     string `json:"pool"`     // name of the storage pool
	PoolPath string `json:"poolPath"` // the hypervisor's folder in which the pool is created
}

// Spec is the complete desired state of one machine. A provider needs no other input to create it.
type Spec struct {
	Node  string
	Role  string
	Index int // 1 for worker-1

	MAC     string
	Address netip.Addr // the zero Addr if the address is discovered after the boot

	VCPUs  int
	Memory uint64   // bytes
	Disk   uint64   // size of the root disk in bytes; if the image is larger, the disk has the size of the image
	Disks  []uint64 // size of each additional disk in bytes; containers have no additional disks
	Pins   []string // host CPUs for each virtual CPU, such as "2" or "4-7"; empty: all host CPUs

	Firmware Firmware
	Init     string // path of a container's first process; empty: /sbin/init
	XML      string // a <domain> that is merged into the generated <domain>; may be empty

	Image    Image
	Identity Identity

	// NewDisks says that disks may be created, because the machine is new or its creation was interrupted. If it is
	// false, a missing disk is an error.
	NewDisks bool
}

// Definition returns a digest of the fields that cannot be changed while the machine runs. If the digest of a machine
// differs from the desired digest, the machine has to be redefined and restarted. The digest does not include the image
// (a machine keeps its disk), the identity (it is set only once), and the address (the network assigns it).
func (s Spec) Definition() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %q %q %q %v",
		s.MAC, s.VCPUs, s.Memory, s.Disks, s.Pins, s.Firmware, s.Init, s.XML, s.Image.Kernel != ""))
	return hex.EncodeToString(sum[:8])
}

// Firmware is the firmware of a virtual machine.
type Firmware string

const (
	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"
)

// Image is what a role's machines boot from. An image is named after a hash that stands for its content, so it is
// uploaded to a hypervisor only once.
type Image struct {
	Hash   string `json:"hash"` // 16 hex digits
	Disk   string `json:"-"`    // path of a local file
	Format Format `json:"format,omitempty"`
	Size   uint64 `json:"-"` // size of the virtual disk in bytes
	// Local paths, for direct kernel boot; empty if the image has a boot loader.
	Kernel  string `json:"kernel,omitempty"`
	Initrd  string `json:"initrd,omitempty"`
	Cmdline string `json:"cmdline,omitempty"`
}

type Format string

const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw" // for containers: a file system without partitions
)

// Identity contains the keys and the node.json that a machine gets at its first boot. Only HostKey is secret: it must
// not be in a description of the machine (such as libvirt's XML) that other users can read.
type Identity struct {
	HostKey       []byte // private key in OpenSSH's PEM format
	AuthorizedKey string // SSH key that logs in as root
	Node          []byte // content of /var/lib/nixbench/node.json
}

type Network struct {
	Name   string       `json:"name"`
	Mode   Mode         `json:"mode"`
	CIDR   netip.Prefix `json:"cidr,omitzero"`    // the zero Prefix for a network that nixbench does not manage
	Bridge string       `json:"bridge,omitempty"` // name of the host's bridge, for mode bridge
	Domain string       `json:"domain,omitempty"` // DNS domain of the nodes
}

// String formats the network: `net (nat, 10.0.0.0/24, internal)`.
func (n Network) String() string {
	about := []string{string(n.Mode), "", n.Bridge, n.Domain}
	if n.CIDR.IsValid() {
		about[1] = n.CIDR.String()
	}
	about = slices.DeleteFunc(about, func(text string) bool { return text == "" })
	return fmt.Sprintf("%s (%s)", n.Name, strings.Join(about, ", "))
}

type Mode string

const (
	NAT      Mode = "nat"      // managed by nixbench: machines reach other networks through the hypervisor
	Isolated Mode = "isolated" // managed by nixbench: machines reach each other and the hypervisor
	Existing Mode = "existing" // an existing network of the hypervisor, which nixbench does not change
	Bridge   Mode = "bridge"   // a bridge of the host, on which another DHCP server runs
)

// Ours reports whether nixbench creates networks of this mode and assigns their addresses.
func (m Mode) Ours() bool { return m == NAT || m == Isolated }

// Reservation is a DHCP reservation: it binds an address to a machine's MAC.
type Reservation struct {
	Node    string
	MAC     string
	Address netip.Addr
}

// HostSetup contains the network, reservations and images that a hypervisor needs before machines are created on it.
type HostSetup struct {
	Network      Network
	Reservations []Reservation // reservations of all machines of the cluster; empty if nixbench does not manage the network
	Images       []Image
}

// Gateway returns the hypervisor's address on a managed network: the first address of the range after the network address.
func (n Network) Gateway() netip.Addr { return n.CIDR.Masked().Addr().Next() }

// Broadcast returns the last address of an IPv4 network's range. Without such a range, as in a damaged state, it returns no address.
func (n Network) Broadcast() netip.Addr {
	if !n.CIDR.Addr().Is4() {
		return netip.Addr{}
	}
	a := n.CIDR.Masked().Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|math.MaxUint32>>n.CIDR.Bits())
	return netip.AddrFrom4(a)
}

// MAC returns a node's hardware address. It is derived from the names of cluster and node, so it is the same in every run.
func MAC(cluster, node string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x000", cluster, node))
	// 52:54 is a locally administered prefix. The third byte is odd, so the address is never in
	// 52:54:00, from which libvirt draws random addresses.
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", sum[0]|1, sum[1], sum[2], sum[3])
}

// ParseSize parses a size as it is written in the hive, whose options accept only sizes: 512M, 4G. Units are powers of 1024. A size that is
// too large for an integer becomes the largest integer.
func ParseSize(text string) uint64 {
	number := strings.TrimRight(text, "KMGT")
	n, err := strconv.ParseUint(number, 10, 64)
	shift := 10 * (1 + strings.Index("KMGT", text[len(number):]))
	if err != nil || n > math.MaxInt64>>shift {
		return math.MaxInt64
	}
	return n << shift
}
