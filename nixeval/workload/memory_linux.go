package workload

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// unknownMemory is returned for a machine whose kernel does not report its memory, so that only the number of
// cores limits evaluations.
const unknownMemory = 1 << 62

// availableMemory returns the number of bytes that evaluations may use.
func availableMemory() int64 { return freeMemory(os.DirFS("/")) }

// cgroupRoot is where a system mounts the cgroups of version 2. Limits of version 1 are not considered: a process that
// exceeds them is killed, and its units are evaluated again one after the other.
const cgroupRoot = "sys/fs/cgroup"

// freeMemory returns the number of bytes that this process can allocate without swapping: MemAvailable of the
// machine, or what the limits of this process's cgroup and of all its ancestors leave, whichever is less.
// root is the root of the file system.
func freeMemory(root fs.FS) int64 {
	free := int64(unknownMemory)
	if kb, ok := readField(root, "proc/meminfo", "MemAvailable:"); ok {
		free = kb << 10
	}
	cgroup, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(cgroup)) {
		below, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for dir := path.Join(cgroupRoot, below); ok && len(dir) >= len(cgroupRoot); dir = path.Dir(dir) {
			if left, limited := cgroupLeft(root, dir); limited {
				free = min(free, left)
			}
		}
	}
	return max(0, free)
}

// cgroupLeft returns the number of bytes that the cgroup in dir may still allocate. It returns false if the cgroup has
// no limit. memory.high is a limit too: a cgroup above it is slowed down until it makes no progress.
func cgroupLeft(root fs.FS, dir string) (int64, bool) {
	limit, limited := int64(unknownMemory), false
	for _, name := range []string{"memory.max", "memory.high"} {
		if n, ok := readNumber(root, path.Join(dir, name)); ok { // it contains `max` if there is no limit
			limit, limited = min(limit, n), true
		}
	}
	used, ok := readNumber(root, path.Join(dir, "memory.current"))
	if !limited || !ok {
		return 0, false
	}
	for _, field := range []string{"inactive_file", "active_file"} { // page cache that the kernel can drop
		n, _ := readField(root, path.Join(dir, "memory.stat"), field)
		used -= n
	}
	return limit - max(0, used), true
}

// readNumber reads a file that contains one number. It returns false for a file that does not exist or contains
// other text.
func readNumber(root fs.FS, name string) (int64, bool) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}

// readField returns the number that follows the field's name on a line of a file.
func readField(root fs.FS, name, field string) (int64, bool) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[0] == field {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
