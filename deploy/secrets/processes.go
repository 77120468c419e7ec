package secrets

import "syscall"

// process identifies a process on this computer by its id and its start time, because the kernel reuses ids.
type process struct {
	pid, parent int
	start       string
}

// descendants returns the children of pid and their descendants. A process whose parent has ended,
// such as an agent that runs in the background, is not included.
func descendants(pid int) []process {
	children := map[int][]process{}
	for _, p := range listProcesses() {
		children[p.parent] = append(children[p.parent], p)
	}
	var out []process
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			out, next = append(out, p), append(next, p.pid)
		}
	}
	return out
}

// signalAll sends a signal to those of the processes that still exist.
func signalAll(list []process, s syscall.Signal) {
	for _, p := range list {
		if now, ok := readProcess(p.pid); ok && now.start == p.start {
			_ = syscall.Kill(p.pid, s)
		}
	}
}
