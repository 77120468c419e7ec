package workload

import (
	"math"

	"golang.org/x/sys/unix"
)

// availableMemory returns the number of bytes that evaluations may use: half of the memory of this machine, because
// macOS does not report how much of it programs can still allocate without swapping. If the size of the memory is not
// known, only the number of cores limits evaluations.
func availableMemory() int64 {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return math.MaxInt64
	}
	return int64(size / 2)
}

// reservesMemory reports whether the kernel counts memory when a program allocates it, and not when the program uses it.
func reservesMemory() bool { return false }
