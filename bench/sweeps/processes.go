package sweeps

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// findMachineProcesses returns, by node, the id of the process that is the node's machine: QEMU or libvirt_lxc. All other
// processes of the machine descend from it. domains maps nodes to the names of their libvirt domains.
func findMachineProcesses(proc string, domains map[string]string) map[string]int {
	out := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		argv := strings.Split(string(data), "\x00")
		if name := filepath.Base(argv[0]); name != "libvirt_lxc" && !strings.HasPrefix(name, "qemu-") && name != "qemu-kvm" {
			continue
		}
		for node, d := range domains {
			if hasDomain(argv, d) {
				out[node], _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
		}
	}
	return out
}

// hasDomain reports whether the arguments of libvirt_lxc or QEMU name a domain: --name DOMAIN, or -name guest=DOMAIN,….
func hasDomain(argv []string, domain string) bool {
	for i, a := range argv[:max(0, len(argv)-1)] {
		if value := argv[i+1]; (a == "--name" || a == "-name") && (value == domain || strings.HasPrefix(value+",", "guest="+domain+",")) {
			return true
		}
	}
	return false
}
