// Package workload decides how many evaluations run at once, and how many units each of them evaluates, from the cores
// and the free memory of this machine.
package workload

import (
	"cmp"
	"math"
	"runtime"
)

// Work is what one kind of evaluation costs. An evaluation of n units needs about base + n×memory bytes.
type Work struct {
	base, memory int64
	// MaxChunk is the maximum number of units that one process evaluates, unless the user sets another. A larger chunk saves
	// little time. Also, progress is counted in chunks, and a failing unit is searched in its chunk.
	MaxChunk int
}

// Measured with Nix 2.26 and the nixpkgs of 2026. Systems with nginx and sshd need 0.82, 1.40, 2.02 and 3.43 GiB for
// 1, 2, 3 and 5 units; if Nix collects no garbage, half of it more, and a quarter less time. The survey of 5, 20 and 50 Kubernetes
// workers needs 0.5, 1.6 and 3.7 GiB.
var (
	Systems = Work{base: 256 << 20, memory: 640 << 20, MaxChunk: 3}
	Survey  = Work{base: 256 << 20, memory: 80 << 20, MaxChunk: 20}
)

// bytesFor returns the memory that an evaluation of n units needs.
func (w Work) bytesFor(n int) int64 { return w.base + int64(n)*w.memory }

// Plan is how units are evaluated: at most Processes at once, with up to Chunk units each.
type Plan struct{ Processes, Chunk int }

// Plan returns how to evaluate the given number of units with all cores. If the memory is too small for this, it first makes the
// chunks smaller, and then starts fewer processes. workers and chunkSize, if they are not 0, determine Processes and Chunk. A plan
// needs more memory than is free only if one process, or what workers and chunkSize ask for, needs more.
func (w Work) Plan(units, workers, chunkSize int) Plan {
	return w.planFor(runtime.GOMAXPROCS(0), availableMemory(), units, workers, chunkSize) // GOMAXPROCS considers a limit of the cgroup
}

// planFor does the work of Plan for a machine with so many cores and bytes of free memory. It leaves an eighth of the memory for
// nixbench, for machines that boot meanwhile, and for systems larger than the measured ones.
func (w Work) planFor(cores int, memory int64, units, workers, chunkSize int) Plan {
	memory -= memory / 8
	units = max(1, units)
	smallest, largest := 1, w.MaxChunk
	if chunkSize > 0 {
		smallest, largest = min(chunkSize, units), chunkSize
	}
	processes := cmp.Or(workers, int(max(1, min(int64(cores), memory/w.bytesFor(smallest)))))
	processes = min(processes, divideRoundingUp(units, smallest))
	chunk := max(smallest, min(largest, divideRoundingUp(units, processes)))
	for chunk > smallest && int64(processes)*w.bytesFor(chunk) > memory {
		chunk--
	}
	return Plan{processes, chunk}
}

// Split returns the units in chunks of nearly equal size, the larger ones first, so that all processes end at about the same time.
func (p Plan) Split(units []string) (chunks [][]string) {
	rounds := divideRoundingUp(len(units), p.Processes*p.Chunk)
	for left := min(len(units), rounds*p.Processes); left > 0; left-- {
		n := divideRoundingUp(len(units), left)
		chunks, units = append(chunks, units[:n]), units[n:]
	}
	return chunks
}

// Heap returns the number of bytes that a process of the plan may allocate before it collects garbage, so that it need not collect any. It
// returns 0 if the free memory is too small for this, or unknown.
func (w Work) Heap(p Plan) int64 {
	if reservesMemory() {
		return 0
	}
	return w.heapFor(p, availableMemory())
}

func (w Work) heapFor(p Plan, memory int64) int64 {
	needs := w.bytesFor(p.Chunk)
	heap := min(needs+needs/2, (memory-memory/8)/int64(p.Processes))
	if heap < needs || memory == math.MaxInt64 {
		return 0
	}
	return heap
}

func divideRoundingUp(a, b int) int { return 1 + (a-1)/b } // for positive numbers
