package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/noise"
)

// Host describes the computer on which nixbench runs. The machines of a sweep run on it, too, unless the hypervisor is remote.
type Host struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory int    `json:"memory"` // MiB
	// Nix is what nix --version printed when the sweep was built. It is empty if Nix did not answer.
	Nix     string `json:"nix,omitempty"`
	Libvirt string `json:"libvirt,omitempty"` // versions, as the programs print them
	QEMU    string `json:"qemu,omitempty"`
	// Governor is the governor of the frequency of the first processor, and SMT is 1 if the threads of a core are processors.
	Governor string `json:"governor,omitempty"`
	SMT      string `json:"smt,omitempty"`
}

// ReadHost returns the description of this computer, without the version of Nix. A field that cannot be read stays empty. root is the
// folder that contains proc and sys, normally /.
func ReadHost(root string) Host {
	h := Host{CPUs: runtime.NumCPU()}
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(root, name))
		return strings.TrimSpace(string(data))
	}
	h.Kernel = read("proc/sys/kernel/osrelease")
	h.Governor, h.SMT = read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), read("sys/devices/system/cpu/smt/active")
	model, _ := noise.LineOf([]byte(read("proc/cpuinfo")), "model name")
	h.CPU = strings.TrimPrefix(model, ": ")
	memory, _ := noise.LineOf([]byte(read("proc/meminfo")), "MemTotal:")
	kib, _ := strconv.Atoi(strings.TrimSuffix(memory, " kB"))
	h.Memory = kib / 1024
	return h
}
