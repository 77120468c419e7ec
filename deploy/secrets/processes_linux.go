package secrets

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listProcesses returns the visible processes.
func listProcesses() []process {
	var out []process
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, file := range files {
		if pid, err := strconv.Atoi(filepath.Base(file)); err == nil {
			if p, ok := readProcess(pid); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// readProcess parses /proc/PID/stat, which has the form "pid (name) state parent …". The name may contain any characters. The
// start time is the twentieth field after the name.
func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(data, ')')
	if err != nil || at < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(data[at+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid, parent, fields[19]}, err == nil
}
