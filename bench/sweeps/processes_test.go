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
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(strings.Join(argv, "\x00")+"\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := findMachineProcesses(proc, map[string]string{"w-1": "10", "w-2": "u-2", "w-3": "u-3", "w-4": "16", "w-5": ""})
	if want := map[string]int{"w-1": 10, "w-2": 12, "w-3": 15}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
