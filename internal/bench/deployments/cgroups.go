package deployments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A hierarchy is where the kernel accounts processor time: the controller cpuacct of cgroup v1, or cgroup v2.
type hierarchy struct {
	mount   string // folder
	unified bool   // cgroup v2
}

// findHierarchy finds the hierarchy in the content of /proc/self/mountinfo. It prefers cgroup v1: if the controller is
// there, containers may have no cgroups of their own in v2.
func findHierarchy(mountinfo string) (hierarchy, error) {
	var unified string
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(kind) < 3 || mount[3] != "/" {
			continue
		}
		switch {
		case kind[0] == "cgroup" && strings.Contains(","+kind[2]+",", ",cpuacct,"):
			return hierarchy{mount: mount[4]}, nil
		case kind[0] == "cgroup2" && unified == "":
			unified = mount[4]
		}
	}
	if unified == "" {
		return hierarchy{}, errors.New("no cgroup hierarchy with processor time is mounted: neither cgroup2 nor cpuacct of cgroup v1")
	}
	return hierarchy{unified, true}, nil
}

// findNodeGroup finds the cgroup of a container by name, below the cgroups of a lab.
func (h hierarchy) findNodeGroup(labID, container string) (string, error) {
	var found string
	err := filepath.WalkDir(h.mount, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a cgroup of another lab has been removed
		}
		if err != nil || !d.IsDir() {
			return err
		}
		if isContainerGroup(d.Name(), container) && strings.Contains(path, "/"+labID+"/") {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s has no cgroup of the container %s of %s", h.mount, container, labID)
	}
	return found, err
}

// isContainerGroup reports whether libvirt gives a cgroup of this name to the container: lxc-NUMBER-CONTAINER.libvirt-lxc.
func isContainerGroup(name, container string) bool {
	rest, ok := strings.CutSuffix(name, "-"+container+".libvirt-lxc")
	number, isLXC := strings.CutPrefix(rest, "lxc-")
	_, err := strconv.Atoi(number)
	return ok && isLXC && err == nil
}

// readUsage returns the processor seconds of all processes that were ever in the cgroup, or in one below it.
func (h hierarchy) readUsage(group string) (float64, error) {
	if h.unified {
		text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
		if err != nil {
			return 0, err
		}
		return parseStat(string(text))
	}
	text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	return parseUsage(string(text))
}

// parseUsage parses cpuacct.usage of cgroup v1, nanoseconds.
func parseUsage(text string) (float64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cpuacct.usage: %w", err)
	}
	return float64(n) / 1e9, nil
}

// parseStat parses cpu.stat of cgroup v2.
func parseStat(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("cpu.stat: %w", err)
			}
			return float64(n) / 1e6, nil
		}
	}
	return 0, errors.New("cpu.stat has no line usage_usec")
}

// listProcesses returns the ids of the processes in the cgroup, and in those below it.
func listProcesses(group string) ([]uint32, error) {
	var pids []uint32
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil // the cgroup has been removed
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.ParseUint(word, 10, 32); err == nil {
				pids = append(pids, uint32(pid))
			}
		}
		return nil
	})
	return pids, err
}

// findLabID returns the name of the lab's cgroups from /proc/PID/cgroup of one of its processes.
func findLabID(groups string) (string, error) {
	for part := range strings.FieldsFuncSeq(groups, func(r rune) bool { return r == '/' || r == '\n' }) {
		if strings.HasPrefix(part, "nixbench-lab-") {
			return part, nil
		}
	}
	return "", errors.New("the lab's first process is in no cgroup nixbench-lab-…")
}
