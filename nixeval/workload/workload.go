// Package workload decides how many evaluations run at once, and how many units each of them evaluates, from the cores
// and the free memory of this machine.
package workload

import (
	"runtime"
)

// memoryCost is the approximate memory in bytes of one evaluation: an evaluation of n units needs base + n×unit.
type memoryCost struct{ base, unit int64 }

func (c memoryCost) of(units int) int64 { return c.base + int64(units)*c.unit }

// Work is what one kind of evaluation costs. An evaluation of n units takes the time start + n×unit; only the ratio of start and
// unit matters.
type Work struct {
	memory      memoryCost
	start, unit int64
	// MaxChunk is the maximum number of units that one process evaluates, unless the user sets another. A larger chunk saves
	// little time. Also, progress is counted in chunks, and a failing unit is searched in its chunk.
	MaxChunk int
}

// Measured with Nix 2.26 and the nixpkgs of 2026. Systems with nginx and sshd need 0.82, 1.40, 2.02 and 3.43 GiB for
// 1, 2, 3 and 5 units, and about 4.5 s and 5.5 s per unit. The survey of 5, 20 and 50 Kubernetes workers needs 0.5, 1.6
// and 3.7 GiB, and about 1.1 s and 0.5 s per unit.
var (
	Systems = Work{memoryCost{base: 256 << 20, unit: 640 << 20}, 9, 11, 5}
	Survey  = Work{memoryCost{base: 256 << 20, unit: 80 << 20}, 11, 5, 20}
)

// resources are the cores and the free memory, in bytes, of this machine.
type resources struct {
	cores  int
	memory int64
}

// findResources returns the resources that this process may use.
func findResources() resources {
	return resources{runtime.GOMAXPROCS(0), availableMemory()} // GOMAXPROCS considers a limit of the cgroup
}

// fit returns how many processes of the given cost the machine can run at once, at least one. An eighth of the
// memory is reserved for nixbench, for machines that boot meanwhile, and for systems larger than the measured ones.
func (r resources) fit(cost int64) int {
	return int(max(1, min(int64(r.cores), (r.memory-r.memory/8)/cost)))
}

// Plan is how units are evaluated: at most Processes at once, with up to Chunk units each.
type Plan struct{ Processes, Chunk int }

// Plan returns the plan that takes the least time for the given number of units, and among plans of equal time the one
// that needs the least memory. workers and chunkSize, if they are not 0, determine
// Processes and Chunk.
// A plan needs more memory than is free only if both are set, or if one process for one unit, or the number of processes
// asked for, needs more.
func (w Work) Plan(units, workers, chunkSize int) Plan {
	return w.planFor(findResources(), units, workers, chunkSize)
}

// planFor does the work of Plan for a machine with the resources r. It compares the time of each possible size of a chunk.
func (w Work) planFor(r resources, units, workers, chunkSize int) Plan {
	units = max(1, units)
	smallest, largest := 1, min(w.MaxChunk, units)
	if chunkSize > 0 {
		smallest = min(chunkSize, units)
		largest = smallest
	}
	var best Plan
	var bestTime, bestMemory int64
	for chunk := smallest; chunk <= largest; chunk++ {
		cost := w.memory.of(chunk)
		processes := r.fit(cost)
		if workers > 0 {
			processes = workers
		}
		if chunk > smallest && int64(processes)*cost > r.memory-r.memory/8 {
			break // a larger chunk needs even more
		}
		chunks := divideRoundingUp(units, chunk)
		rounds := divideRoundingUp(chunks, processes)
		processes = divideRoundingUp(chunks, rounds) // more processes would not save a round
		time, memory := int64(rounds)*(w.start+int64(chunk)*w.unit), int64(processes)*cost
		if best.Chunk == 0 || time < bestTime || time == bestTime && memory < bestMemory {
			best, bestTime, bestMemory = Plan{processes, chunk}, time, memory
		}
	}
	return best
}

func divideRoundingUp(a, b int) int { return 1 + (a-1)/b } // for positive numbers; a+b-1 could overflow
