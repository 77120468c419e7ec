package domainxml

import (
	"encoding/base64"
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Domain returns the XML of a machine's domain.
func Domain(m Machine) (string, error) {
	mark, err := marshalMachineMark(m)
	if err != nil {
		return "", err
	}
	s := m.Spec
	d := libvirtxml.Domain{
		Type:     m.Host.Type,
		Name:     m.Cluster.MachineName(s.Node),
		UUID:     DomainUUID(m.Cluster, s.Node),
		Metadata: &libvirtxml.DomainMetadata{XML: mark},
		Memory:   &libvirtxml.DomainMemory{Value: uint(s.Memory >> 10), Unit: "KiB"},
		VCPU:     &libvirtxml.DomainVCPU{Value: uint(s.VCPUs)},
		CPUTune:  newCPUTune(s.Pins),
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// OnReboot: when the guest reboots, libvirt restarts the domain.
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
	}
	if m.Host.Type == "lxc" {
		configureContainer(&d, m)
	} else if lacksBIOS(m.Host.Arch) && s.Firmware == provider.BIOS && s.Image.Kernel == "" {
		return "", fmt.Errorf("role %s: a machine of %s has no BIOS; set roles.%s.firmware = \"uefi\"", s.Role, m.Host.Arch, s.Role)
	} else {
		configureVM(&d, m)
	}
	if strings.TrimSpace(s.XML) != "" {
		if err := merge(&d, s.XML); err != nil {
			return "", fmt.Errorf("role %s: the option xml: %w", s.Role, err)
		}
	}
	return d.Marshal()
}

func lacksBIOS(arch string) bool { return arch == "aarch64" || arch == "riscv64" }

func newCPUTune(cpus []string) *libvirtxml.DomainCPUTune {
	if len(cpus) == 0 {
		return nil
	}
	var tune libvirtxml.DomainCPUTune
	for i, set := range cpus {
		tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: set})
	}
	return &tune
}

// newInterface returns the machine's interface on the cluster's network.
func newInterface(m Machine) libvirtxml.DomainInterface {
	source := &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: m.Network.Name}}
	if m.Network.Mode == provider.Bridge {
		source = &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: m.Network.Bridge}}
	}
	return libvirtxml.DomainInterface{MAC: &libvirtxml.DomainInterfaceMAC{Address: m.Spec.MAC}, Source: source}
}

func configureVM(d *libvirtxml.Domain, m Machine) {
	s := m.Spec
	d.OS = &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: m.Host.Arch, Type: "hvm", Machine: machineType(m)},
		Kernel: m.Files.Kernel, Initrd: m.Files.Initrd,
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	if m.Files.Kernel != "" {
		d.OS.Cmdline = s.Image.Cmdline
	}
	if s.Firmware == provider.UEFI {
		// The boot loaders of NixOS are not signed. Without the following setting, libvirt chooses the first firmware
		// that fits the machine type. On Debian and Fedora, that firmware accepts only signed boot loaders.
		d.OS.Firmware = "efi"
		d.OS.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{{Enabled: "no", Name: "secure-boot"}}}
	}
	d.Features = &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}}
	switch m.Host.Type {
	case "kvm":
		d.CPU = &libvirtxml.DomainCPU{Mode: "host-passthrough", Check: "none"}
	case "qemu":
		d.CPU = newEmulatedCPU(m.Host.Arch)
		// Limit QEMU's translation cache, because without a limit the cache of each machine may use a quarter of the host's memory.
		d.Features.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: 64}}
	}
	d.SysInfo = newSysInfo(m)

	nic := newInterface(m)
	nic.Model = &libvirtxml.DomainInterfaceModel{Type: "virtio"}
	serial := libvirtxml.DomainSerial{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}
	if m.Files.Console != "" {
		serial.Log = &libvirtxml.DomainChardevLog{File: m.Files.Console, Append: "on"}
	}
	port := uint(0)
	d.Devices = &libvirtxml.DomainDeviceList{
		Disks:      listDisks(m),
		Interfaces: []libvirtxml.DomainInterface{nic},
		Serials:    []libvirtxml.DomainSerial{serial},
		Consoles: []libvirtxml.DomainConsole{{
			Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
			Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &port},
		}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		Controllers: []libvirtxml.DomainController{{Type: "usb", Model: "none"}},
		MemBalloon:  &libvirtxml.DomainMemBalloon{Model: "none"},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
	}
}

// machineType returns QEMU's machine type. On x86_64, UEFI needs the type q35. With KVM, q35 is also the best type.
// Without KVM, the older type pc is faster.
func machineType(m Machine) string {
	switch {
	case m.Host.Type == "test":
		return ""
	case m.Host.Arch != "x86_64":
		return "virt"
	case m.Host.Type == "qemu" && m.Spec.Firmware != provider.UEFI:
		return "pc"
	}
	return "q35"
}

// newEmulatedCPU returns the CPU of an emulated machine. On x86_64, the CPU does not have the feature cx16: with this
// feature, emulated guests with several CPUs sometimes panic.
func newEmulatedCPU(arch string) *libvirtxml.DomainCPU {
	if arch != "x86_64" {
		return &libvirtxml.DomainCPU{Mode: "maximum"}
	}
	return &libvirtxml.DomainCPU{
		Mode: "custom", Match: "exact", Check: "none",
		Model:    &libvirtxml.DomainCPUModel{Fallback: "allow", Value: "qemu64"},
		Features: []libvirtxml.DomainCPUFeature{{Policy: "disable", Name: "cx16"}},
	}
}

func listDisks(m Machine) []libvirtxml.DomainDisk {
	all := []libvirtxml.DomainDisk{newDisk(m.Files.Root, "qcow2", 0, "root")}
	for i, file := range m.Files.Disks {
		all = append(all, newDisk(file, "qcow2", i+1, fmt.Sprintf("disk%d", i+1)))
	}
	return all
}

func newDisk(file, format string, n int, serial string) libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: format, Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: file}},
		Target: &libvirtxml.DomainDiskTarget{Dev: "vd" + string(rune('a'+n)), Bus: "virtio"},
		Serial: serial,
	}
}

// newSysInfo returns the SMBIOS and fw_cfg entries that give the guest its identity. Every user of the
// hypervisor can read the XML, so the private key is not in the XML, but in a file that fw_cfg passes
// to the guest.
func newSysInfo(m Machine) []libvirtxml.DomainSysInfo {
	uuid := libvirtxml.DomainSysInfoEntry{Name: "uuid", Value: DomainUUID(m.Cluster, m.Spec.Node)}
	smbios := &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{Entry: []libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: "nixbench"}, {Name: "product", Value: m.Cluster.Name}, uuid,
	}}}
	all := []libvirtxml.DomainSysInfo{{SMBIOS: smbios}}
	if m.Files.Credential == "" {
		return all
	}
	smbios.OEMStrings = &libvirtxml.DomainSysInfoOEMStrings{Entry: []string{
		"io.systemd.credential:system.hostname=" + m.Spec.Node,
	}}
	if keys := authorizedKeys(m.Spec.Identity); keys != nil {
		smbios.OEMStrings.Entry = append(smbios.OEMStrings.Entry,
			"io.systemd.credential.binary:ssh.authorized_keys.root="+base64.StdEncoding.EncodeToString(keys))
	}
	return append(all, libvirtxml.DomainSysInfo{FWCfg: &libvirtxml.DomainSysInfoFWCfg{Entry: []libvirtxml.DomainSysInfoEntry{
		{Name: "opt/io.systemd.credentials/tmpfiles.extra", File: m.Files.Credential},
	}}})
}

func configureContainer(d *libvirtxml.Domain, m Machine) {
	first := m.Spec.Init
	if first == "" {
		first = "/sbin/init"
	}
	d.OS = &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: m.Host.Arch, Type: "exe"}, Init: first}
	d.Features = &libvirtxml.DomainFeatureList{Capabilities: &libvirtxml.DomainFeatureCapabilities{Policy: "default"}}
	nic := newInterface(m)
	nic.Guest = &libvirtxml.DomainInterfaceGuest{Dev: "eth0"}
	d.Devices = &libvirtxml.DomainDeviceList{
		Filesystems: []libvirtxml.DomainFilesystem{{
			AccessMode: "passthrough",
			Driver:     &libvirtxml.DomainFilesystemDriver{Type: "loop", Format: "raw"},
			Source:     &libvirtxml.DomainFilesystemSource{File: &libvirtxml.DomainFilesystemSourceFile{File: m.Files.Root}},
			Target:     &libvirtxml.DomainFilesystemTarget{Dir: "/"},
		}},
		Interfaces: []libvirtxml.DomainInterface{nic},
		Consoles:   []libvirtxml.DomainConsole{{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}},
	}
	if m.Files.Credential == "" {
		return
	}
	// systemd in the container reads the credentials from this folder. The folder is in /run, so libvirt mounts /run:
	// otherwise systemd would mount an empty /run over the credentials.
	d.OS.InitEnv = []libvirtxml.DomainOSInitEnv{{Name: "CREDENTIALS_DIRECTORY", Value: Credentials}}
	d.Devices.Filesystems = append(d.Devices.Filesystems,
		newMemoryFilesystem("/run", max(m.Spec.Memory/4, 16<<20)), newMemoryFilesystem(Credentials, 1<<20),
		newFileMount(m.Files.Credential, "tmpfiles.extra"), newFileMount(m.Files.Hostname, "system.hostname"))
}

// newMemoryFilesystem returns a file system in the memory of a container.
func newMemoryFilesystem(at string, size uint64) libvirtxml.DomainFilesystem {
	return libvirtxml.DomainFilesystem{
		AccessMode: "passthrough",
		Source:     &libvirtxml.DomainFilesystemSource{RAM: &libvirtxml.DomainFilesystemSourceRAM{Usage: uint(size >> 10), Units: "KiB"}},
		Target:     &libvirtxml.DomainFilesystemTarget{Dir: at},
	}
}

// newFileMount mounts a file of the hypervisor as a credential of a container. libvirt also mounts files, and not only folders.
func newFileMount(file, credential string) libvirtxml.DomainFilesystem {
	return libvirtxml.DomainFilesystem{
		AccessMode: "passthrough",
		Source:     &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Dir: file}},
		Target:     &libvirtxml.DomainFilesystemTarget{Dir: Credentials + "/" + credential},
		ReadOnly:   &libvirtxml.DomainFilesystemReadOnly{},
	}
}
