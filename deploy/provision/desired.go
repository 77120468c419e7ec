package provision

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Desired is the desired state of one node's machine in the hive. It does not contain the hypervisor, the MAC and
// the address, which [Make] chooses, nor the image and the keys, which are added when the plan is executed.
type Desired struct {
	Node  string
	Role  string
	Index int

	VCPUs    int
	Memory   uint64   // bytes
	Disk     uint64   // bytes of the root disk
	Disks    []uint64 // bytes of each additional disk
	Pins     []string // host CPUs for each virtual CPU
	Firmware Firmware
	Init     string
	XML      string
	Method   Method
	On       []string // hypervisors on which the machine may be created; empty: any
}

// makeSpec returns the spec of the machine with this place and this image.
func (w Desired) makeSpec(p Place, image Image) Spec {
	return Spec{
		Node: w.Node, Role: w.Role, Index: w.Index, MAC: p.MAC, Address: p.Address,
		VCPUs: w.VCPUs, Memory: w.Memory, Disk: w.Disk, Disks: w.Disks, Pins: w.Pins,
		Firmware: w.Firmware, Init: w.Init, XML: w.XML, Image: image, Identity: Identity{Method: w.Method},
	}
}

// ParseSize parses a size as it is written in the hive: 512M, 4G. Units are powers of 1024.
func ParseSize(text string) (uint64, error) {
	i := strings.IndexByte("KMGT", lastByteOf(text))
	if i < 0 {
		return 0, fmt.Errorf("%q is not a size; write a number with K, M, G or T, such as 4G", text)
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 64)
	shift := 10 * (i + 1)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size; write a number with K, M, G or T, such as 4G", text)
	}
	return n << shift, nil
}

func lastByteOf(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// SizeText formats a size for messages: 512 MiB, 1.5 GiB.
func SizeText(n uint64) string {
	unit, names := uint64(1), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for i < len(names)-1 && n >= unit<<10 {
		unit, i = unit<<10, i+1
	}
	if n%unit == 0 {
		return fmt.Sprintf("%d %s", n/unit, names[i])
	}
	return fmt.Sprintf("%.1f %s", float64(n)/float64(unit), names[i])
}
