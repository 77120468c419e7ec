package noise

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/event"
)

const (
	warning    = 4      // the log level of the kernel's warnings; more serious messages have lower levels
	maxRecords = 10_000 // that one call of read reads: a kernel that writes messages all the time would stop the samples
	maxAlerts  = 5      // whose texts are kept
)

// alertRE matches kernel messages about problems that slow programs down or end them: no memory, tasks that hang, hardware failures, and
// processors that are too hot.
var alertRE = regexp.MustCompile(`^(Memory cgroup )?[Oo]ut of memory: |blocked for more than \d+ seconds|soft lockup|[Hh]ard LOCKUP|rcu.*(stall|self-detected)|Machine check|\[Hardware Error\]|I/O error|temperature above threshold|clock throttled|clocksource.*unstable`)

// cgroupMemory is the beginning of messages about a process that exceeded the memory limit of its cgroup. The cgroup may belong to
// the benchmark.
const cgroupMemory = "Memory cgroup out of memory"

// kernelLog looks for messages in the log of the kernel. It finds nothing if the log is not readable.
type kernelLog struct {
	fd     int
	alerts []string // the first messages that alertRE matches
	buffer []byte
}

// openKernelLog opens the kernel's log, so that only later messages are read.
func openKernelLog(path string) kernelLog {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1 // from which reads fail
	}
	_, _ = unix.Seek(fd, 0, unix.SEEK_END)
	return kernelLog{fd: fd, buffer: make([]byte, 8<<10)} // the kernel's records are shorter
}

func (k *kernelLog) close() { _ = unix.Close(k.fd) }

// read reads the warnings and more serious messages that the kernel has written since the last call. Messages that programs have written
// into the kernel's log do not count.
func (k *kernelLog) read() {
	for range maxRecords {
		n, err := unix.Read(k.fd, k.buffer)
		if err == unix.EPIPE || err == unix.EINTR { // continue after EPIPE: the kernel has overwritten records that were not read yet
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for line := range bytes.Lines(k.buffer[:n]) {
			priority, rest, _ := bytes.Cut(line, []byte(","))
			if p, err := strconv.Atoi(string(priority)); err == nil && p >= 0 && p <= warning { // messages of programs have a larger number, with a facility
				_, text, _ := strings.Cut(strings.TrimSpace(string(rest)), ";")
				if len(k.alerts) < maxAlerts && alertRE.MatchString(text) {
					k.alerts = append(k.alerts, event.Printable(text))
				}
			}
		}
	}
}
