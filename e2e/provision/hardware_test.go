package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// What a role says of a virtual machine's hardware is what its system sees, also after
// it has been changed.
func TestHardware(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "vm")
	b := newBench(t, fmt.Sprintf(`{
    count = 1; vcpus = 1; memory = "512M"; disk = "4G"; disks = [ "100M" "1G" ]; image = "%s";
    firmware = "uefi"; cpuPins = [ "1" ];
    xml = "<domain><devices><watchdog model='i6300esb' action='none'/></devices></domain>";
  }`, image))
	before := b.things("qemu")
	b.run(0, "doctor")
	b.run(0, "apply", "boot") // to switch takes half a minute where it is emulated

	look := func(script string) string {
		out, _ := b.run(0, "ssh", "w-1", "--", script)
		return strings.TrimSpace(out)
	}
	const sizes = "test -d /sys/firmware/efi && for d in vda vdb vdc; do cat /sys/block/$d/size /sys/block/$d/serial; echo; done | xargs; nproc; awk '/MemTotal/ {print ($2 > 530*1024)}' /proc/meminfo"
	const disks = "8388608 root 204800 disk1 2097152 disk2\n"
	if got := look(sizes); got != disks+"1\n0" {
		t.Errorf("the machine sees %q", got)
	}
	if got := look("cat /sys/bus/pci/devices/*/device"); !strings.Contains(got, "0x25ab") {
		t.Errorf("there is no watchdog: %s", got)
	}
	domain := b.l.Virsh(t, "-c", b.l.URI("qemu"), "dumpxml demo-w-1")
	if !strings.Contains(domain, "<vcpupin vcpu='0' cpuset='1'/>") {
		t.Error(domain)
	}
	_, rest, _ := strings.Cut(domain, "<nvram")
	_, rest, _ = strings.Cut(rest, ">")
	nvram, _, _ := strings.Cut(rest, "<")
	nvram = filepath.Join("/proc", worldOf(t, b.l), "root", nvram)
	if _, err := os.Stat(nvram); err != nil {
		t.Errorf("firmware without a memory: %v\n%s", err, domain)
	}

	b.hive(strings.NewReplacer(`"512M"`, `"640M"`, "vcpus = 1", "vcpus = 2", `[ "1" ]`, `[ "1" "0-2" ]`).Replace(b.role()))
	_, stderr := b.run(2, "apply", "boot")
	if !strings.Contains(stderr, "vcpus 1 → 2, memory 512 MiB → 640 MiB") || !strings.Contains(stderr, "--yes") {
		t.Errorf("nobody was asked: %s", stderr)
	}
	b.run(0, "apply", "boot", "--yes")
	if got := look(sizes); got != disks+"2\n1" {
		t.Errorf("then the machine sees %q", got)
	}
	if pins := b.l.Virsh(t, "-c", b.l.URI("qemu"), "vcpupin demo-w-1"); !strings.Contains(pins, "0-2") {
		t.Error(pins)
	}
	b.run(0, "destroy", "--yes")
	b.want("left", b.things("qemu"), before)
	if _, err := os.Stat(nvram); !os.IsNotExist(err) {
		t.Errorf("the firmware's memory is still there: %v", err)
	}
}
