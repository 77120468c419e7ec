package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Host describes the computer on which nixbench runs. The machines of a sweep run on it, too, unless the hypervisor is remote.
type Host struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory int    `json:"memory"` // MiB
	// Nix is what nix --version printed when the sweep was built. It is empty if Nix did not answer.
	Nix string `json:"nix,omitempty"`
}

// ReadHost returns the description of this computer, without the version of Nix. A field that cannot be read stays empty. root is the
// folder that contains proc, normally /.
func ReadHost(root string) Host {
	h := Host{CPUs: runtime.NumCPU()}
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(root, "proc", name))
		return string(data)
	}
	h.Kernel = strings.TrimSpace(read("sys/kernel/osrelease"))
	for line := range strings.Lines(read("cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			h.CPU = strings.TrimSpace(value)
			break
		}
	}
	for line := range strings.Lines(read("meminfo")) {
		if value, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			h.Memory = kib / 1024
		}
	}
	return h
}
