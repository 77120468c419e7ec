package nixeval

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// workerMemory is about the memory that one NixOS evaluation of a few nodes takes.
const workerMemory = 600 << 20

const (
	minChunk = 2 // nodes that read each other's options are cheaper to evaluate together
	maxChunk = 5 // a larger chunk costs more memory than it saves time
)

type limits struct{ workers int }

// machineLimits returns how many evaluations may run at once: asked, or if that is 0, what the
// machine allows.
func machineLimits(asked int) limits {
	if asked > 0 {
		return limits{asked}
	}
	return limits{max(1, min(runtime.NumCPU(), int(freeMemory()/workerMemory)))}
}

// splitUnits splits units into chunks so that all workers have work.
func splitUnits(units []string, workers int) [][]string {
	if len(units) == 0 {
		return nil
	}
	size := (len(units) + workers - 1) / workers
	size = min(max(size, minChunk), maxChunk)
	var out [][]string
	for len(units) > size {
		out = append(out, units[:size:size])
		units = units[size:]
	}
	return append(out, units)
}

// freeMemory returns the bytes that programs can allocate without swapping. If the kernel does not
// report them, it returns a huge number, so that only the number of cores counts.
func freeMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 1 << 62
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err == nil {
			return kb << 10
		}
	}
	return 1 << 62
}
