package libvirt

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type machine struct {
	Cluster provider.Cluster
	Network provider.Network
	Spec    provider.Spec
	Image   string // hash of the image that the root disk was created from; the hive (Spec.Image) may have a newer image
	Host    host
	Files   files
}

type files struct {
	Root    string   // root disk
	Disks   []string // additional disks
	Kernel  string
	Initrd  string
	Console string // log of the serial console; empty: the console is not logged

	Credential string // systemd credential tmpfiles.extra
	Hostname   string // a container's systemd credential system.hostname
}

func domainXML(m machine) (string, error) {
	s := m.Spec
	name := "vm.xml"
	if m.Host.Type == "lxc" {
		name = "container.xml"
	} else if lacksBIOS := m.Host.Arch == "aarch64" || m.Host.Arch == "riscv64"; lacksBIOS && s.Firmware == provider.BIOS && s.Image.Kernel == "" {
		return "", fmt.Errorf("role %s: a machine of %s has no BIOS; set roles.%s.firmware = \"uefi\"", s.Role, m.Host.Arch, s.Role)
	}
	text, err := executeTemplate(name, m)
	if err != nil {
		return "", err
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return "", fmt.Errorf("role %s: %w", s.Role, err)
	}
	if strings.TrimSpace(s.XML) != "" {
		if err := merge(&d, s.XML); err != nil {
			return "", fmt.Errorf("role %s: the option xml: %w", s.Role, err)
		}
	}
	return d.Marshal()
}

// The templates call these methods.

func (m machine) Name() string { return m.Cluster.MachineName(m.Spec.Node) }

func (m machine) UUID() string { return domainUUID(m.Cluster, m.Spec.Node) }

func (m machine) UEFI() bool { return m.Spec.Firmware == provider.UEFI }

func (m machine) MemoryKiB() uint64 { return m.Spec.Memory >> 10 }

func (m machine) RunKiB() uint64 { return max(m.Spec.Memory/4, 16<<20) >> 10 }

func (m machine) AuthorizedKey() string {
	return base64.StdEncoding.EncodeToString([]byte(m.Spec.Identity.AuthorizedKey + "\n"))
}

// Type returns QEMU's machine type. On x86_64, UEFI needs the type q35. With KVM, q35 is also the best type.
// Without KVM, the older type pc is faster.
func (m machine) Type() string {
	switch {
	case m.Host.test:
		return ""
	case m.Host.Arch != "x86_64":
		return "virt"
	case m.Host.Type == "qemu" && !m.UEFI():
		return "pc"
	}
	return "q35"
}

type disk struct{ File, Device, Serial string }

func (m machine) Disks() []disk {
	all := []disk{{m.Files.Root, "vda", "root"}}
	for i, file := range m.Files.Disks {
		all = append(all, disk{file, "vd" + string(rune('b'+i)), fmt.Sprintf("disk%d", i+1)})
	}
	return all
}

// merge merges the XML of a role into a generated domain. It appends the devices. Each feature, and each other element, replaces
// the generated one. It returns an error for <name>, <uuid> and <metadata>, because these identify the owner of the domain.
func merge(to *libvirtxml.Domain, text string) error {
	if !strings.HasPrefix(strings.TrimSpace(text), "<domain") {
		return errors.New("its element is not <domain>")
	}
	var from libvirtxml.Domain
	if err := from.Unmarshal(text); err != nil {
		return err
	}
	if from.Name != "" || from.UUID != "" || from.Metadata != nil {
		return errors.New("<name>, <uuid> and <metadata> are set by nixbench and cannot be replaced")
	}
	replaceFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
	return nil
}

// replaceFields copies each field that is set from one struct to the other. In <devices>, the lists are joined.
func replaceFields(to, from reflect.Value) {
	for i := range from.NumField() {
		t, f := to.Field(i), from.Field(i)
		_, nested := f.Interface().(*libvirtxml.DomainDeviceList)
		if !nested {
			_, nested = f.Interface().(*libvirtxml.DomainFeatureList)
		}
		switch {
		case f.IsZero():
		case nested && !t.IsNil():
			replaceFields(t.Elem(), f.Elem())
		case from.Type() == reflect.TypeFor[libvirtxml.DomainDeviceList]() && f.Kind() == reflect.Slice:
			t.Set(reflect.AppendSlice(t, f))
		default:
			t.Set(f)
		}
	}
}

// domainInfo is a domain as libvirt describes it. Mark is nil if nixbench did not create the domain.
type domainInfo struct {
	Name string
	UUID string
	Mark *machineMark
	MAC  string // MAC of the first interface; nixbench defines this interface, and the role's XML the others
	// Networks are the libvirt networks of all interfaces. For an interface that is on no libvirt network, the name is empty.
	Networks []string
	VCPUs    int
	Memory   uint64   // bytes
	Disks    []string // paths of the disks
}

// IsMachineOf reports whether the domain is a machine that nixbench created for the cluster. A clone has the
// same mark but another UUID, so the result is false.
func (f domainInfo) IsMachineOf(c provider.Cluster) bool {
	return f.Mark != nil && f.Mark.ID == c.ID && f.UUID == domainUUID(c, f.Mark.Node)
}

func parseDomain(text string) (domainInfo, error) {
	// These elements may be missing.
	d := libvirtxml.Domain{
		Metadata: &libvirtxml.DomainMetadata{}, VCPU: &libvirtxml.DomainVCPU{}, Memory: &libvirtxml.DomainMemory{},
		Devices: &libvirtxml.DomainDeviceList{},
	}
	if err := d.Unmarshal(text); err != nil {
		return domainInfo{}, fmt.Errorf("read libvirt's description of a domain: %w", err)
	}
	f := domainInfo{
		Name: d.Name, UUID: d.UUID, Mark: parseMarks(d.Metadata.XML).Machine, VCPUs: int(d.VCPU.Value),
		Memory: uint64(d.Memory.Value) << 10, // libvirt reports KiB
	}
	for n, i := range d.Devices.Interfaces {
		if n == 0 && i.MAC != nil {
			f.MAC = i.MAC.Address
		}
		network := ""
		if i.Source != nil && i.Source.Network != nil {
			network = i.Source.Network.Network
		}
		f.Networks = append(f.Networks, network)
	}
	for _, disk := range d.Devices.Disks {
		if disk.Source != nil && disk.Source.File != nil {
			f.Disks = append(f.Disks, disk.Source.File.File)
		}
	}
	return f, nil
}
