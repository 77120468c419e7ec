package workload

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// availableMemory returns the number of bytes that evaluations may use.
func availableMemory() int64 { return freeMemory(os.DirFS("/")) }

// reservesMemory reports whether the kernel counts memory when a program allocates it, and not when the program uses it.
func reservesMemory() bool {
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(resource, &limit); err != nil || limit.Cur != unix.RLIM_INFINITY {
			return true
		}
	}
	mode, ok := readNumber(os.DirFS("/"), "proc/sys/vm/overcommit_memory", "")
	return !ok || mode == 2
}

// cgroupRoot is where a system mounts the cgroups of version 2. Limits of version 1 are not considered: a process that
// exceeds them is killed, and its units are evaluated again one after the other.
const cgroupRoot = "sys/fs/cgroup"

// freeMemory returns the number of bytes that this process can allocate without swapping: MemAvailable of the machine, or what the
// limits of this process's cgroup and of all its ancestors leave, whichever is less. If the kernel reports no memory, it returns
// the largest number, so that only the number of cores limits evaluations. root is the root of the file system.
func freeMemory(root fs.FS) int64 {
	free := int64(math.MaxInt64)
	if kb, ok := readNumber(root, "proc/meminfo", "MemAvailable:"); ok {
		free = kb << 10
	}
	cgroup, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(cgroup)) {
		below, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for dir := path.Join(cgroupRoot, below); ok && len(dir) >= len(cgroupRoot); dir = path.Dir(dir) {
			used, _ := readNumber(root, dir+"/memory.current", "")
			for _, field := range []string{"inactive_file", "active_file"} { // page cache that the kernel can drop
				n, _ := readNumber(root, dir+"/memory.stat", field)
				used -= n
			}
			// memory.high is a limit too: a cgroup above it is slowed down until it makes no progress. Without a limit, the files
			// contain `max`.
			for _, name := range []string{"/memory.max", "/memory.high"} {
				if limit, ok := readNumber(root, dir+name, ""); ok {
					free = min(free, limit-max(0, used))
				}
			}
		}
	}
	return max(0, free)
}

// readNumber returns the number in a file that follows the field's name at the beginning of a line, or the only number in the file
// if field is empty. It returns false if there is none.
func readNumber(root fs.FS, name, field string) (int64, bool) {
	data, _ := fs.ReadFile(root, name)
	for line := range strings.Lines(string(data)) {
		if text, found := strings.CutPrefix(line, field); found {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB\n")), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
