package sweeps

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The processes of the benchmark's machines are found by the names of their domains, and no others.
func TestFindMachineProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, argv := range map[string][]string{
		"10": {"/usr/lib/libvirt/libvirt_lxc", "--name", "c-w-1", "--console", "22"},
		"11": {"/usr/lib/libvirt/libvirt_lxc", "--name", "c-w-11"},
		"12": {"/usr/bin/qemu-system-x86_64", "-name", "guest=c-w-2,debug-threads=on", "-S"},
		"13": {"/usr/bin/qemu-system-x86_64", "-name", "guest=other-w-2"},
		"14": {"bash", "--name", "c-w-1"},
		"15": {"/usr/libexec/qemu-kvm", "-name", "guest=c-w-3"},
		"16": {"libvirt_lxc", "--name"},
		"17": {""},
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(strings.Join(argv, "\x00")+"\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := findMachineProcesses(proc, map[string]string{"w-1": "c-w-1", "w-2": "c-w-2", "w-3": "c-w-3", "w-4": "c-w-4"})
	if want := map[string]int{"w-1": 10, "w-2": 12, "w-3": 15}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
