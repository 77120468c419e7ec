package domainxml

import (
	"embed"
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

//go:embed *.xml
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.xml"))

// execute returns the template with this file name, filled with the data.
func execute(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

// Domain returns the XML of a machine's domain: the template for machines of its kind, into which the XML of the role is merged.
func Domain(m Machine) (string, error) {
	s := m.Spec
	name := "vm.xml"
	if m.Host.Type == "lxc" {
		name = "container.xml"
	} else if lacksBIOS := m.Host.Arch == "aarch64" || m.Host.Arch == "riscv64"; lacksBIOS && s.Firmware == provider.BIOS && s.Image.Kernel == "" {
		return "", fmt.Errorf("role %s: a machine of %s has no BIOS; set roles.%s.firmware = \"uefi\"", s.Role, m.Host.Arch, s.Role)
	}
	text, err := execute(name, templateData{m})
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

// templateData adds to a machine the values that the templates compute from it.
type templateData struct{ Machine }

func (m templateData) Name() string { return m.Cluster.MachineName(m.Spec.Node) }

func (m templateData) UUID() string { return DomainUUID(m.Cluster, m.Spec.Node) }

func (m templateData) UEFI() bool { return m.Spec.Firmware == provider.UEFI }

func (m templateData) MemoryKiB() uint64 { return m.Spec.Memory >> 10 }

// RunKiB returns the size of a container's /run.
func (m templateData) RunKiB() uint64 { return max(m.Spec.Memory/4, 16<<20) >> 10 }

func (m templateData) AuthorizedKeys() string {
	return base64.StdEncoding.EncodeToString(authorizedKeys(m.Spec.Identity))
}

// Type returns QEMU's machine type. On x86_64, UEFI needs the type q35. With KVM, q35 is also the best type.
// Without KVM, the older type pc is faster.
func (m templateData) Type() string {
	switch {
	case m.Host.Type == "test":
		return ""
	case m.Host.Arch != "x86_64":
		return "virt"
	case m.Host.Type == "qemu" && !m.UEFI():
		return "pc"
	}
	return "q35"
}

// disk is a disk of a virtual machine.
type disk struct{ File, Device, Serial string }

func (m templateData) Disks() []disk {
	all := []disk{{m.Files.Root, "vda", "root"}}
	for i, file := range m.Files.Disks {
		all = append(all, disk{file, "vd" + string(rune('b'+i)), fmt.Sprintf("disk%d", i+1)})
	}
	return all
}
