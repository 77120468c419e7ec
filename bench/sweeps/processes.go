package sweeps

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/noise"
)

// findMachineProcesses returns, by node, the id of the process that is the node's machine: QEMU or libvirt_lxc. All other processes of the
// machine descend from it. machines has what identifies the process of each node, see [bench.Running]. The name of a machine would not
// suffice, because machines on other hypervisors of this computer can have the same name.
func findMachineProcesses(proc string, machines map[string]string) map[string]int {
	out := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		argv, folder := strings.Split(string(data), "\x00"), filepath.Dir(file)
		for node, m := range machines {
			switch program := filepath.Base(argv[0]); {
			case m == "":
			case program == "libvirt_lxc" && innerID(folder) == m, strings.HasPrefix(program, "qemu-") && slices.Contains(argv, m):
				out[node], _ = strconv.Atoi(filepath.Base(folder))
			}
		}
	}
	return out
}

// innerID returns the id of a process in its own PID namespace, which is that of the hypervisor, from the process's folder in /proc.
func innerID(folder string) string {
	data, _ := os.ReadFile(filepath.Join(folder, "status")) // an error means that the process has ended
	ids, _ := noise.LineOf(data, "NSpid:")
	return ids[strings.LastIndexAny(ids, " \t")+1:]
}
