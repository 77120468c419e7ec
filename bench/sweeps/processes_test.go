package sweeps

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The processes of the benchmark's machines are found, and no machines of the same names on other hypervisors of this computer.
func TestFindMachineProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, argv := range map[string][]string{
		"10": {"/usr/lib/libvirt/libvirt_lxc", "--name", "c-w-1", "--console", "22"},
		"11": {"/usr/lib/libvirt/libvirt_lxc", "--name", "c-w-1"},
		"12": {"/usr/bin/qemu-system-x86_64", "-name", "guest=c-w-2,debug-threads=on", "-uuid", "u-2"},
		"13": {"/usr/bin/qemu-system-x86_64", "-name", "guest=c-w-2", "-uuid", "u-22"},
		"14": {"bash", "u-2"},
		"15": {"/usr/libexec/qemu-kvm", "-name", "guest=c-w-3", "-uuid", "u-3"},
		"16": {"bash", "--name", "c-w-1"},
		"17": {""},
		"18": {"/usr/lib/libvirt/libvirt_lxc", "--name", "c-w-6"}, // with the id 7 in the PID namespace of its hypervisor
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		status := "Name:\tx\nNSpid:\t" + pid + "\nThreads:\t1\n"
		if pid == "18" {
			status = "NSpid:\t18\t7\n"
		}
		for name, text := range map[string]string{"cmdline": strings.Join(argv, "\x00") + "\x00", "status": status} {
			if err := os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := findMachineProcesses(proc, map[string]string{"w-1": "10", "w-2": "u-2", "w-3": "u-3", "w-4": "16", "w-5": "", "w-6": "7", "w-7": "18"})
	if want := map[string]int{"w-1": 10, "w-2": 12, "w-3": 15, "w-6": 18}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
