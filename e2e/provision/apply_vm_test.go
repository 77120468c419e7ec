package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Two virtual machines from one image, the second with its own hardware settings: its system has
// the hardware that its role describes, also after a change. They are emulated, so this test
// is the slowest one: the file's name makes it start first.
func TestVirtualMachines(t *testing.T) {
	t.Parallel()
	emulate(t)
	image := lab.Image(t, "vm")
	role := fmt.Sprintf(`{
    count = 1; vcpus = 1; memory = "512M"; disk = "4G"; image = "%s";
    modules = [ { environment.etc."version".text = "one"; } ];
  }`, image)
	b := newBareHypervisor(t, role)
	b.nix = fmt.Sprintf(`roles.h = {
    count = 1; vcpus = 1; memory = "512M"; disk = "4G"; disks = [ "100M" "1G" ]; image = "%s";
    firmware = "uefi"; cpuPins = [ "1" ];
    xml = "<domain><devices><watchdog model='i6300esb' action='none'/></devices></domain>";
    modules = [ { environment.etc."version".text = "one"; } ];
  };`, image)
	b.writeHive(role)
	const patience = "--timeout=confirm=5m" // on a busy machine
	before := b.listObjects("qemu")
	b.run(0, "doctor")
	_, stderr := b.run(0, "apply", patience)
	b.want("apply", results(stderr), []string{"h-1 generation", "w-1 generation"})
	explained, _ := b.run(0, "explain")
	t.Log(explained)
	first := b.bootIDs()
	_, stderr = b.run(0, "apply", patience)
	b.want("again", results(stderr), []string{"h-1 unchanged", "w-1 unchanged"})

	look := func(script string) string {
		out, _ := b.run(0, "ssh", "h-1", "--", script)
		return strings.TrimSpace(out)
	}
	const sizes = "test -d /sys/firmware/efi && for d in vda vdb vdc; do cat /sys/block/$d/size /sys/block/$d/serial; echo; done | xargs; nproc; awk '/MemTotal/ {print ($2 > 530*1024)}' /proc/meminfo"
	const disks = "8388608 root 204800 disk1 2097152 disk2\n"
	if got := look("cat /sys/bus/pci/devices/*/device; touch /var/lib/kept; sync"); !strings.Contains(got, "0x25ab") {
		t.Errorf("the machine has no watchdog: %s", got)
	}
	if got := look(sizes); got != disks+"1\n0" {
		t.Errorf("the machine's disks, processors and memory are %q", got)
	}
	domain := b.l.Virsh(t, "-c", b.l.URIs["qemu"], "dumpxml demo-h-1")
	if !strings.Contains(domain, "<vcpupin vcpu='0' cpuset='1'/>") {
		t.Error(domain)
	}
	_, rest, _ := strings.Cut(domain, "<nvram")
	_, rest, _ = strings.Cut(rest, ">")
	nvram, _, _ := strings.Cut(rest, "<")
	nvram = filepath.Join("/proc", labPID(t, b.l), "root", nvram)
	if _, err := os.Stat(nvram); err != nil {
		t.Errorf("the firmware's NVRAM file does not exist: %v\n%s", err, domain)
	}

	// Both get another system, and h-1 other hardware.
	b.nix = strings.NewReplacer(`"one"`, `"two"`, `"512M"`, `"640M"`, "vcpus = 1", "vcpus = 2", `[ "1" ]`, `[ "1" "0-1" ]`).Replace(b.nix)
	b.writeHive(strings.Replace(role, `"one"`, `"two"`, 1))
	_, stderr = b.run(2, "apply")
	if !strings.Contains(stderr, "restart h-1 on default: vcpus 1 → 2, memory 512.0 MiB → 640.0 MiB") || !strings.Contains(stderr, "--yes") {
		t.Errorf("the restart needs no confirmation: %s", stderr)
	}
	_, stderr = b.run(0, "apply", patience, "--yes")
	b.want("another system", results(stderr), []string{"h-1 generation", "w-1 generation"})
	if got := look(sizes + "; ls /var/lib/kept"); got != disks+"2\n1\n/var/lib/kept" {
		t.Errorf("after the change the machine's disks, processors, memory and file are %q", got)
	}
	if pins := b.l.Virsh(t, "-c", b.l.URIs["qemu"], "vcpupin demo-h-1"); !strings.Contains(pins, "0-1") {
		t.Error(pins)
	}
	second := b.bootIDs()
	if second["h-1"] == first["h-1"] || second["w-1"] != first["w-1"] {
		t.Errorf("restarted: %v, then %v", first, second)
	}
	b.run(0, "reboot", "--on", "w-1", "--timeout", "10m")
	third := b.bootIDs()
	if third["w-1"] == second["w-1"] || third["h-1"] != second["h-1"] {
		t.Errorf("rebooted: %v, then %v", second, third)
	}
	version := func(want string) {
		t.Helper()
		if out, _ := b.run(0, "exec", "--", "cat", "/etc/version"); strings.Count(out, want) != 2 {
			t.Errorf("the nodes' versions are %s, want %s", out, want)
		}
	}
	version("two")
	b.run(0, "rollback", patience, "--yes")
	version("one")
	b.run(0, "destroy", "--yes")
	b.want("left", b.listObjects("qemu"), before)
	if _, err := os.Stat(nvram); !os.IsNotExist(err) {
		t.Errorf("the firmware's NVRAM file still exists: %v", err)
	}
}
