package nixeval

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// workerMemory is the approximate memory in bytes that one evaluation of a few NixOS nodes needs.
const workerMemory = 600 << 20

// Minimum and maximum number of units that one Nix process evaluates.
const (
	minChunk = 2 // units that read each other's options are cheaper to evaluate together
	maxChunk = 5 // a larger chunk saves little time, and needs much memory
)

type limits struct{ workers int }

// newLimits returns the maximum number of concurrent evaluations: asked, or if asked is 0, the
// number that the cores and the free memory of this machine allow.
func newLimits(asked int) limits {
	if asked > 0 {
		return limits{asked}
	}
	return limits{max(1, min(runtime.NumCPU(), int(freeMemory()/workerMemory)))}
}

// splitUnits splits units into chunks of minChunk to maxChunk units, if possible as many chunks as
// workers.
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

// freeMemory returns the number of bytes that programs can allocate without swapping. If the kernel
// does not report this number, it returns 1<<62, so that only the number of cores limits
// evaluations.
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
