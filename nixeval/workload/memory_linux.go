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

// freeMemory returns the number of bytes that this process can allocate without swapping: MemAvailable of the
// machine, or what the limits of this process's memory cgroup and of all its ancestors leave, whichever is less.
// root is the root of the file system.
func freeMemory(root fs.FS) int64 {
	free := int64(unknownMemory)
	if kb, ok := readField(root, "proc/meminfo", "MemAvailable:"); ok {
		free = kb << 10
	}
	for _, h := range memoryHierarchies(root) {
		for dir := h.dir; ; dir = path.Dir(dir) {
			if left, ok := h.files.left(root, dir); ok {
				free = min(free, left)
			}
			if len(dir) <= len(h.mount) {
				break
			}
		}
	}
	return max(0, free)
}

// cgroupFiles are the names of the files of a memory cgroup.
type cgroupFiles struct {
	limits []string // the limits, in bytes; the text `max` and a very large number mean no limit
	used   string   // used bytes, with the page cache
	cache  []string // fields of memory.stat with page cache that the kernel can drop
}

var (
	// memory.high is a limit too: a cgroup above it is slowed down until it makes no progress.
	filesV2 = cgroupFiles{[]string{"memory.max", "memory.high"}, "memory.current", []string{"inactive_file", "active_file"}}
	filesV1 = cgroupFiles{[]string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
)

// left returns the number of bytes that the cgroup in dir may still allocate. It returns false if the cgroup has
// no limit.
func (f cgroupFiles) left(root fs.FS, dir string) (int64, bool) {
	limit, limited := int64(unknownMemory), false
	for _, name := range f.limits {
		if n, ok := readNumber(root, path.Join(dir, name)); ok && n < limit {
			limit, limited = n, true
		}
	}
	used, ok := readNumber(root, path.Join(dir, f.used))
	if !limited || !ok {
		return 0, false
	}
	for _, field := range f.cache {
		n, _ := readField(root, path.Join(dir, "memory.stat"), field)
		used -= n
	}
	return limit - max(0, used), true
}

// hierarchy is a mounted cgroup hierarchy that may limit memory.
type hierarchy struct {
	files cgroupFiles
	mount string // folder of the mount
	dir   string // folder of this process's cgroup, in mount
}

// memoryHierarchies returns the cgroup hierarchies of version 1 and 2 that may limit the memory of this process.
func memoryHierarchies(root fs.FS) []hierarchy {
	cgroups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []hierarchy
	for line := range strings.Lines(string(cgroups)) {
		// The line is ID:CONTROLLERS:PATH; version 2 has id 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers := "," + fields[1] + ","; {
		case fields[0] == "0" && fields[1] == "":
			out = appendMounted(out, filesV2, string(mounts), "cgroup2", "", fields[2])
		case strings.Contains(controllers, ",memory,"):
			out = appendMounted(out, filesV1, string(mounts), "cgroup", "memory", fields[2])
		}
	}
	return out
}

// appendMounted appends the hierarchy that is mounted with the given type and option of the file system.
func appendMounted(out []hierarchy, files cgroupFiles, mounts, kind, option, cgroup string) []hierarchy {
	for line := range strings.Lines(mounts) {
		// The line is `ID PARENT DEVICE ROOT MOUNT OPTIONS [TAGS] - TYPE SOURCE SUPEROPTIONS`.
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		place, system := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(system) < 3 || system[0] != kind {
			continue
		}
		if option != "" && !strings.Contains(","+system[2]+",", ","+option+",") {
			continue
		}
		mount := strings.TrimPrefix(place[4], "/")
		// In a container the mount may show only the container's part of the hierarchy, and the path of the
		// process may begin above it.
		below, inside := strings.CutPrefix(cgroup, strings.TrimSuffix(place[3], "/"))
		if !inside || below != "" && !strings.HasPrefix(below, "/") || strings.Contains(cgroup, "..") {
			below = ""
		}
		out = append(out, hierarchy{files, mount, path.Join(mount, below)})
	}
	return out
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
