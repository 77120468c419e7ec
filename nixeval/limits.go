package nixeval

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// A NixOS evaluation of a few nodes takes about this much memory.
const workerMemory = 600 << 20

const (
	minChunk = 2 // nodes that read each other's options are cheaper together
	maxChunk = 5 // beyond this, a process's memory grows faster than time is saved
)

type limits struct{ workers int }

// machineLimits says how many evaluations may run at once.
func machineLimits(asked int) limits {
	if asked > 0 {
		return limits{asked}
	}
	return limits{max(1, min(runtime.NumCPU(), int(freeMemory()/workerMemory)))}
}

// chunks cuts units so that all workers have something to do.
func chunks(units []string, workers int) [][]string {
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

// freeMemory is what programs can have without swapping. Where the kernel does not
// say, cores alone decide.
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
