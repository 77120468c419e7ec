package secrets

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// listProcesses returns the visible processes.
func listProcesses() []process {
	list, _ := unix.SysctlKinfoProcSlice("kern.proc.all") // if the list cannot be read, only the program itself gets signals, and not its descendants
	out := make([]process, 0, len(list))
	for i := range list {
		out = append(out, toProcess(&list[i]))
	}
	return out
}

// readProcess returns the process with the id pid, and whether it exists.
func readProcess(pid int) (process, bool) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return process{}, false
	}
	return toProcess(p), true
}

func toProcess(p *unix.KinfoProc) process {
	start := p.Proc.P_starttime
	return process{int(p.Proc.P_pid), int(p.Eproc.Ppid), fmt.Sprintf("%d.%06d", start.Sec, start.Usec)}
}
