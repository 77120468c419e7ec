package workload

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestPlanEvaluation(t *testing.T) {
	const gib = 1 << 30
	for _, tc := range []struct {
		cores          int
		memory         int64
		units          int
		workers, chunk int // asked for
		want           Plan
	}{
		// One unit needs 0.9 GiB, two 1.5, five 3.4; an eighth of the memory is reserved.
		{cores: 4, memory: 24 * gib, units: 20, want: Plan{4, 3}},
		{cores: 16, memory: 12 * gib, units: 20, want: Plan{12, 1}},
		{cores: 2, memory: 2 * gib, units: 5, want: Plan{2, 1}},
		{cores: 64, memory: 256 * gib, units: 500, want: Plan{64, 3}},
		{cores: 64, memory: 64 * gib, units: 500, want: Plan{64, 1}},
		{cores: 8, memory: 1 * gib, units: 20, want: Plan{1, 1}},
		{cores: 8, memory: 100 << 20, units: 20, want: Plan{1, 1}}, // less than one process needs
		{cores: 8, memory: 0, units: 3, want: Plan{1, 1}},
		{cores: 1, memory: 24 * gib, units: 20, want: Plan{1, 3}},
		{cores: 1, memory: 2 * gib, units: 2, want: Plan{1, 2}},
		{cores: 4, memory: math.MaxInt64, units: 21, want: Plan{4, 3}},
		{cores: 4, memory: 24 * gib, units: 2, want: Plan{2, 1}},
		{cores: 4, memory: 24 * gib, units: 1, want: Plan{1, 1}},
		{cores: 4, memory: 24 * gib, units: 0, want: Plan{1, 1}},
		// The user asks for processes: the chunks are what fits.
		{cores: 4, memory: 24 * gib, units: 20, workers: 1, want: Plan{1, 3}},
		{cores: 4, memory: 12 * gib, units: 40, workers: 7, want: Plan{7, 2}},
		{cores: 4, memory: 4 * gib, units: 40, workers: 7, want: Plan{7, 1}}, // needs more, as asked
		// The user asks for units per process: the processes are what fits.
		{cores: 4, memory: 24 * gib, units: 20, chunk: 10, want: Plan{2, 10}},
		{cores: 4, memory: 8 * gib, units: 40, chunk: 10, want: Plan{1, 10}},
		{cores: 4, memory: 1 * gib, units: 20, chunk: math.MaxInt, want: Plan{1, 20}},
		{cores: 4, memory: 1 * gib, units: 20, workers: 3, chunk: 5, want: Plan{3, 5}},
	} {
		if got := Systems.planFor(tc.cores, tc.memory, tc.units, tc.workers, tc.chunk); got != tc.want {
			t.Errorf("%+v: got %+v", tc, got)
		}
	}
}

// Nix collects no garbage if the memory is large enough.
func TestHeap(t *testing.T) {
	const gib = 1 << 30
	needs := Systems.bytesFor(3)
	for _, tc := range []struct{ memory, want int64 }{
		{24 * gib, needs + needs/2}, {6 * gib, (6*gib - 6*gib/8) / 2}, {4 * gib, 0}, {0, 0}, {math.MaxInt64, 0},
	} {
		if got := Systems.heapFor(Plan{2, 3}, tc.memory); got != tc.want {
			t.Errorf("%d bytes of memory: got %d, want %d", tc.memory, got, tc.want)
		}
	}
}

// No plan needs more memory than is free, unless one process for one unit does.
func TestPlanFitsMemory(t *testing.T) {
	for _, w := range []Work{Systems, Survey} {
		for cores := 1; cores <= 64; cores *= 2 {
			for memory := int64(1) << 28; memory <= 1<<38; memory *= 2 {
				for _, units := range []int{1, 2, 3, 7, 20, 100, 501} {
					p := w.planFor(cores, memory, units, 0, 0)
					needs := int64(p.Processes) * w.bytesFor(p.Chunk)
					if p.Processes > cores || p.Chunk > w.MaxChunk || p.Processes < 1 || p.Chunk < 1 ||
						needs > memory && p != (Plan{1, 1}) {
						t.Errorf("%+v, %d cores, %d MiB, %d units: %+v, which needs %d MiB", w, cores, memory>>20, units, p, needs>>20)
					}
				}
			}
		}
	}
}

func TestPlanSurvey(t *testing.T) {
	const gib = 1 << 30
	for _, tc := range []struct {
		cores          int
		memory         int64
		units          int
		workers, chunk int
		want           Plan
	}{
		// One unit needs 0.33 GiB, twenty 1.8.
		{cores: 4, memory: 8 * gib, units: 42, want: Plan{4, 11}},
		{cores: 4, memory: 2 * gib, units: 42, want: Plan{4, 2}},
		{cores: 1, memory: 8 * gib, units: 1000, want: Plan{1, 20}},
		{cores: 16, memory: 2 * gib, units: 42, workers: 7, chunk: 1, want: Plan{7, 1}},
	} {
		if got := Survey.planFor(tc.cores, tc.memory, tc.units, tc.workers, tc.chunk); got != tc.want {
			t.Errorf("%+v: got %+v", tc, got)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		units int
		plan  Plan
		want  []int
	}{
		{0, Plan{2, 3}, nil},
		{1, Plan{2, 3}, []int{1}},
		{3, Plan{2, 1}, []int{1, 1, 1}},
		{5, Plan{2, 3}, []int{3, 2}},
		{10, Plan{2, 3}, []int{3, 3, 2, 2}},
		{20, Plan{3, 20}, []int{7, 7, 6}},
		{20, Plan{1, 5}, []int{5, 5, 5, 5}},
	} {
		units := strings.Fields(strings.Repeat("u ", tc.units))
		var got []int
		for _, chunk := range tc.plan.Split(units) {
			got = append(got, len(chunk))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d units, %+v: chunks of %v, want %v", tc.units, tc.plan, got, tc.want)
		}
	}
}
