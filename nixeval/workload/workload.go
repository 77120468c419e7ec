// Package workload decides how many evaluations run at once, and how many units each of them evaluates, from the cores
// and the free memory of this machine.
package workload

import "runtime"

// Work is what one kind of evaluation costs. An evaluation of n units needs about base + n×memory bytes, and takes the time
// start + n×time; only the ratio of start and time matters.
type Work struct {
	base, memory int64
	start, time  int64
	// MaxChunk is the maximum number of units that one process evaluates, unless the user sets another. A larger chunk saves
	// little time. Also, progress is counted in chunks, and a failing unit is searched in its chunk.
	MaxChunk int
}

// Measured with Nix 2.26 and the nixpkgs of 2026. Systems with nginx and sshd need 0.82, 1.40, 2.02 and 3.43 GiB for
// 1, 2, 3 and 5 units, and about 4.5 s and 5.5 s per unit. The survey of 5, 20 and 50 Kubernetes workers needs 0.5, 1.6
// and 3.7 GiB, and about 1.1 s and 0.5 s per unit.
var (
	Systems = Work{base: 256 << 20, memory: 640 << 20, start: 9, time: 11, MaxChunk: 5}
	Survey  = Work{base: 256 << 20, memory: 80 << 20, start: 11, time: 5, MaxChunk: 20}
)

// bytesFor returns the memory that an evaluation of n units needs.
func (w Work) bytesFor(n int) int64 { return w.base + int64(n)*w.memory }

// Plan is how units are evaluated: at most Processes at once, with up to Chunk units each.
type Plan struct{ Processes, Chunk int }

// Plan returns the plan that takes the least time for the given number of units, and among plans of equal time the one
// that needs the least memory. workers and chunkSize, if they are not 0, determine
// Processes and Chunk.
// A plan needs more memory than is free only if both are set, or if one process for one unit, or the number of processes
// asked for, needs more.
func (w Work) Plan(units, workers, chunkSize int) Plan {
	return w.planFor(runtime.GOMAXPROCS(0), availableMemory(), units, workers, chunkSize) // GOMAXPROCS considers a limit of the cgroup
}

// planFor does the work of Plan for a machine with so many cores and bytes of free memory. It compares the time of each possible
// size of a chunk. It leaves an eighth of the memory for nixbench, for machines that boot meanwhile, and for systems larger than
// the measured ones.
func (w Work) planFor(cores int, memory int64, units, workers, chunkSize int) Plan {
	memory -= memory / 8
	units = max(1, units)
	smallest, largest := 1, min(w.MaxChunk, units)
	if chunkSize > 0 {
		smallest = min(chunkSize, units)
		largest = smallest
	}
	var best Plan
	var bestTime, bestMemory int64
	for chunk := smallest; chunk <= largest; chunk++ {
		cost := w.bytesFor(chunk)
		processes := int(max(1, min(int64(cores), memory/cost)))
		if workers > 0 {
			processes = workers
		}
		if chunk > smallest && int64(processes)*cost > memory {
			break // a larger chunk needs even more
		}
		chunks := divideRoundingUp(units, chunk)
		rounds := divideRoundingUp(chunks, processes)
		processes = divideRoundingUp(chunks, rounds) // more processes would not save a round
		time, needed := int64(rounds)*(w.start+int64(chunk)*w.time), int64(processes)*cost
		if best.Chunk == 0 || time < bestTime || time == bestTime && needed < bestMemory {
			best, bestTime, bestMemory = Plan{processes, chunk}, time, needed
		}
	}
	return best
}

func divideRoundingUp(a, b int) int { return 1 + (a-1)/b } // for positive numbers; a+b-1 could overflow
