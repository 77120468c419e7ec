package noise

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// warning is the level of the kernel's warnings. More serious messages have lower levels.
const warning = 4

// maxRecords is the number of records that one call of count reads, so that a kernel that writes without end does not stop the samples.
const maxRecords = 10_000

// kernelLog counts messages in the log of the kernel. A nil log counts nothing.
type kernelLog struct {
	fd       int
	messages float64
	buffer   []byte
}

// openKernelLog opens the log after its last message. It returns nil if it is not readable.
func openKernelLog(path string) *kernelLog {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return nil
	}
	return &kernelLog{fd: fd, buffer: make([]byte, 8<<10)} // the kernel's records are shorter
}

func (k *kernelLog) close() {
	if k != nil {
		unix.Close(k.fd)
	}
}

// count returns the number of messages of level warning or more serious that the kernel has written since the log was opened, without
// those that programs have written into it.
func (k *kernelLog) count() *float64 {
	if k == nil {
		return nil
	}
	for range maxRecords {
		n, err := unix.Read(k.fd, k.buffer)
		if err == unix.EPIPE || err == unix.EINTR { // EPIPE: the kernel has overwritten records that were not read yet
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for line := range bytes.Lines(k.buffer[:n]) {
			priority, _, _ := bytes.Cut(line, []byte(","))
			if p, err := strconv.Atoi(string(priority)); err == nil && p >= 0 && p <= warning { // others also have the number of a facility
				k.messages++
			}
		}
	}
	return new(k.messages)
}
