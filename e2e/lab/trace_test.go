package lab

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hostState is what a lab could change on the host. Cgroups and processes are not in it,
// because other labs may run at the same time: findTraces finds those of one lab.
type hostState struct {
	mounts   []string
	netns    []string // named network namespaces
	links    []string // network devices
	sysctls  map[string]string
	memberOf map[string]string // network and process namespace of each process: an example
}

func readHostState(tb testing.TB) hostState {
	tb.Helper()
	h := hostState{sysctls: map[string]string{}, memberOf: map[string]string{}}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		tb.Fatal(err)
	}
	h.mounts = strings.Split(strings.TrimSpace(string(mountinfo)), "\n")
	h.netns = listNames("/run/netns")
	h.links = listNames("/sys/class/net")
	for _, name := range []string{
		"kernel/panic", "kernel/panic_on_oops", "kernel/hostname", "vm/overcommit_memory", "vm/swappiness",
		"net/ipv4/ip_forward", "fs/inotify/max_user_instances", "kernel/core_pattern", "kernel/sysrq",
	} {
		value, _ := os.ReadFile("/proc/sys/" + name)
		h.sysctls[name] = string(value)
	}
	for _, kind := range []string{"net", "pid", "mnt"} {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/" + kind)
		for _, link := range links {
			if ns, err := os.Readlink(link); err == nil {
				h.memberOf[ns] = link
			}
		}
	}
	return h
}

func listNames(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ticksSinceBoot returns the current time in ticks since the host's boot, the unit in which
// /proc has the start times of processes.
func ticksSinceBoot(tb testing.TB) uint64 {
	tb.Helper()
	self := exec.Command("cat", "/proc/self/stat")
	stat, err := self.Output()
	if err != nil {
		tb.Fatal(err)
	}
	return startTicks(stat)
}

// startTicks reads the start time of a process: the 20th word behind its name in parentheses.
func startTicks(stat []byte) uint64 {
	words := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(words) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(string(words[19]), 10, 64)
	return ticks
}

// readLabID returns the name of the lab's cgroups, which its first process is in.
func readLabID(tb testing.TB, dir string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "world.pid"))
	if err != nil {
		tb.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(text), " ")
	groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		tb.Fatal(err)
	}
	for part := range strings.SplitSeq(string(groups), "/") {
		part, _, _ = strings.Cut(part, "\n")
		if strings.HasPrefix(part, "nixbench-lab-") {
			return part
		}
	}
	tb.Fatalf("the lab's first process is in no cgroup of the lab:\n%s", groups)
	return ""
}

// findTraces returns what exists of a lab: cgroups with its id, processes in them or in one
// of the namespaces, processes with its folder in their arguments, loop devices on files in
// its folder, and the folder itself. Processes that started after the ticks count only for
// cgroups and arguments: the kernel reuses the numbers of namespaces that have ended.
func findTraces(id, dir string, namespaces []string, ticks uint64) []string {
	var found []string
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == id {
			found = append(found, path)
		}
		return nil
	})
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if process == "/proc/self" {
			continue
		}
		// A zombie only remains until the host's first process reaps it.
		stat, err := os.ReadFile(process + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		later := startTicks(stat) > ticks
		cgroup, _ := os.ReadFile(process + "/cgroup")
		cmdline, _ := os.ReadFile(process + "/cmdline")
		if bytes.Contains(cgroup, []byte(id)) || bytes.Contains(cmdline, []byte(dir)) {
			found = append(found, process+": "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
		for _, kind := range []string{"net", "pid", "mnt"} {
			if ns, err := os.Readlink(process + "/ns/" + kind); err == nil && !later && slices.Contains(namespaces, ns) {
				found = append(found, process+" is in "+ns)
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, loop := range loops {
		if file, err := os.ReadFile(loop); err == nil && bytes.Contains(file, []byte(filepath.Base(dir)+"/")) {
			found = append(found, loop+": "+string(file))
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, dir)
	}
	return found
}

// labNamespaces returns the namespaces of every process of the lab.
func labNamespaces(id string, before hostState) []string {
	var namespaces []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		cgroup, _ := os.ReadFile(process + "/cgroup")
		if !bytes.Contains(cgroup, []byte(id)) {
			continue
		}
		for _, kind := range []string{"net", "pid", "mnt"} {
			ns, err := os.Readlink(process + "/ns/" + kind)
			if _, known := before.memberOf[ns]; err == nil && !known && !slices.Contains(namespaces, ns) {
				namespaces = append(namespaces, ns)
			}
		}
	}
	return namespaces
}

// checkHostUnchanged fails the test if the host's state differs from before.
func checkHostUnchanged(tb testing.TB, before hostState) {
	tb.Helper()
	after := readHostState(tb)
	for _, list := range []struct {
		what          string
		before, after []string
	}{
		{"mounts", before.mounts, after.mounts},
		{"named network namespaces", before.netns, after.netns},
		{"network devices", before.links, after.links},
	} {
		for _, x := range list.after {
			if !slices.Contains(list.before, x) {
				tb.Errorf("new %s: %s", list.what, x)
			}
		}
		for _, x := range list.before {
			if !slices.Contains(list.after, x) {
				tb.Errorf("%s that are gone: %s", list.what, x)
			}
		}
	}
	for name, value := range before.sysctls {
		if after.sysctls[name] != value {
			tb.Errorf("sysctl %s was %q and is %q", name, value, after.sysctls[name])
		}
	}
}
