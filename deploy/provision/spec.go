package provision

import "net/netip"

// Cluster says whose machines these are. The id is drawn once, and kept in the state:
// two clusters that happen to have one name do not touch each other's machines.
type Cluster struct {
	Name string
	ID   string // 16 hex digits
}

// Domain is what libvirt calls a node's machine.
func (c Cluster) Domain(node string) string { return c.Name + "-" + node }

// Spec is the wish for one machine. It is complete: a provider looks at nothing else.
type Spec struct {
	Node  string
	Role  string
	Index int // 1 for worker-1

	MAC     string
	Address netip.Addr // invalid where it is discovered

	VCPUs  int
	Memory uint64   // bytes
	Disk   uint64   // bytes of the root disk; an image that is larger keeps its size
	Disks  []uint64 // bytes of further disks; containers have none
	Pins   []string // processors of the host for each virtual one, such as "2" or "4-7"; empty: any

	Firmware Firmware
	Init     string // first process of a container; empty: /sbin/init
	XML      string // a <domain> whose parts are merged into ours; empty: nothing

	Image    Image
	Identity Identity
}

// Firmware is what a virtual machine starts with.
type Firmware string

const (
	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"
)

// Image is what a role's machines boot from. It is named by its content: the same hash
// is uploaded to a hypervisor once.
type Image struct {
	Hash   string // 16 hex digits: of disk, kernel, initrd and command line
	Disk   string // file here
	Format Format
	// For direct kernel boot, where the image brings them; files here.
	Kernel, Initrd string
	Cmdline        string
}

// Format is that of an image's disk.
type Format string

const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw" // for containers: a file system without partitions
)

// Identity is who a machine is, which it is told at its first boot. HostKey is the
// only secret in it; no description of a machine that others can read may hold it.
type Identity struct {
	Method         Method
	HostKey        []byte   // private, in OpenSSH's PEM
	AuthorizedKeys []string // of root
	Node           []byte   // /var/lib/nixbench/node.json
}

// Method is how a machine is told who it is.
type Method string

const (
	// Auto is Files for containers and Credentials for virtual machines.
	Auto        Method = "auto"
	Credentials Method = "credentials" // systemd's, by SMBIOS and fw_cfg
	CloudInit   Method = "cloud-init"  // a NoCloud seed
	Files       Method = "files"       // bound into the container
)

// Network is the wish for the network that machines are on.
type Network struct {
	Name   string
	Mode   Mode
	CIDR   netip.Prefix
	Bridge string // of the host, with mode bridge
	Domain string // in which nodes have names
}

// Mode is what a network is.
type Mode string

const (
	NAT      Mode = "nat"      // ours: machines reach the world through the hypervisor
	Isolated Mode = "isolated" // ours: they reach each other and the hypervisor
	Existing Mode = "existing" // a libvirt network that somebody else has made; it is not changed
	Bridge   Mode = "bridge"   // a bridge of the host, with somebody else's DHCP
)

// Ours tells whether nixbench makes networks of this mode and hands out their addresses.
func (m Mode) Ours() bool { return m == NAT || m == Isolated }

// Reservation binds an address to a machine.
type Reservation struct {
	Node    string
	MAC     string
	Address netip.Addr
}

// Ground is what machines stand on.
type HostSetup struct {
	Network      Network
	Reservations []Reservation // all of this hypervisor's nodes that shall exist, where the network is ours
	Images       []Image
}
