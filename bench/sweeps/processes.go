package sweeps

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		argv, id := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), filepath.Base(filepath.Dir(file))
		program := filepath.Base(argv[0])
		for node, m := range machines {
			if program == "libvirt_lxc" && m == id || strings.HasPrefix(program, "qemu-") && m != "" && slices.Contains(argv[1:], m) {
				out[node], _ = strconv.Atoi(id)
			}
		}
	}
	return out
}
