package domainxml

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// MachineMark is the metadata of a domain: the cluster and node that own the domain, and the image and the
// definition that the domain was created from.
type MachineMark struct {
	Cluster    string `xml:"cluster,attr"`
	ID         string `xml:"id,attr"`
	Node       string `xml:"node,attr"`
	Role       string `xml:"role,attr"`
	Image      string `xml:"image,attr"`
	Definition string `xml:"definition,attr"`
}

// NetworkMark is the metadata of a network: the cluster that owns the network.
type NetworkMark struct {
	Cluster string `xml:"cluster,attr"`
	ID      string `xml:"id,attr"`
}

// DomainInfo is a domain as libvirt describes it. Mark is nil if nixbench did not create the domain.
type DomainInfo struct {
	Name string
	UUID string
	Mark *MachineMark
	MAC  string // MAC of the first interface; nixbench defines this interface, and the role's XML the others
	// Network is the libvirt network of the first interface; empty if it is on no libvirt network. Networks are those of all interfaces.
	Network  string
	Networks []string
	VCPUs    int
	Memory   uint64   // bytes
	Disks    []string // paths of the disks
}

// IsMachineOf reports whether the domain is a machine that nixbench created for the cluster. A clone has the
// same mark but another UUID, so the result is false.
func (f DomainInfo) IsMachineOf(c provider.Cluster) bool {
	return f.Mark != nil && f.Mark.ID == c.ID && f.UUID == DomainUUID(c, f.Mark.Node)
}

// ParseDomain parses libvirt's description of a domain.
func ParseDomain(text string) (DomainInfo, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return DomainInfo{}, fmt.Errorf("read libvirt's description of a domain: %w", err)
	}
	f := DomainInfo{Name: d.Name, UUID: d.UUID}
	if d.Metadata != nil {
		f.Mark = parseMarks(d.Metadata.XML).Machine
	}
	if d.VCPU != nil {
		f.VCPUs = int(d.VCPU.Value)
	}
	if d.Memory != nil {
		f.Memory = uint64(d.Memory.Value) * bytesPerUnit[d.Memory.Unit]
	}
	if d.Devices != nil {
		for n, i := range d.Devices.Interfaces {
			if n == 0 && i.MAC != nil {
				f.MAC = i.MAC.Address
			}
			if i.Source == nil || i.Source.Network == nil {
				continue
			}
			if f.Networks = append(f.Networks, i.Source.Network.Network); n == 0 {
				f.Network = i.Source.Network.Network
			}
		}
		for _, disk := range d.Devices.Disks {
			if disk.Source != nil && disk.Source.File != nil {
				f.Disks = append(f.Disks, disk.Source.File.File)
			}
		}
	}
	return f, nil
}

var bytesPerUnit = map[string]uint64{"": 1 << 10, "b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// marks are the marks of nixbench in the metadata of a domain or network. Other tools put their own elements beside them.
type marks struct {
	Machine *MachineMark `xml:"urn:nixbench:machine:1 machine"`
	Network *NetworkMark `xml:"urn:nixbench:network:1 network"`
}

func parseMarks(metadata string) marks {
	var m marks
	// The elements of the metadata are wrapped, because an XML document has only one root element.
	if xml.Unmarshal([]byte("<metadata>"+metadata+"</metadata>"), &m) != nil {
		return marks{}
	}
	return m
}
