package secrets

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process identifies a local process by its id and its start time, since the kernel reuses ids.
type process struct {
	pid, parent int
	start       string
}

// descendants returns the children of pid and their descendants. A process whose parent has ended,
// such as an agent that runs in the background, is not included.
func descendants(pid int) []process {
	children := map[int][]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		if p, ok := readProcess(file); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var out []process
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			out, next = append(out, p), append(next, p.pid)
		}
	}
	return out
}

// readProcess parses a file /proc/PID/stat: "pid (name) state parent …". The name may contain any
// characters; the start time is the twentieth field after the name.
func readProcess(file string) (process, bool) {
	data, err := os.ReadFile(file)
	at := bytes.LastIndexByte(data, ')')
	if err != nil || at < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(data[at+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
	parent, err2 := strconv.Atoi(fields[1])
	return process{pid, parent, fields[19]}, err == nil && err2 == nil
}

// signalAll sends a signal to the processes that still exist.
func signalAll(list []process, s syscall.Signal) {
	for _, p := range list {
		if now, ok := readProcess(fmt.Sprintf("/proc/%d/stat", p.pid)); ok && now.start == p.start {
			_ = syscall.Kill(p.pid, s)
		}
	}
}
