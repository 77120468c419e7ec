package nixeval

import (
	"fmt"
	"slices"
	"testing"
)

func TestSplitUnits(t *testing.T) {
	for _, tc := range []struct{ units, workers, chunks int }{
		{0, 4, 0}, {1, 4, 1}, {2, 4, 1}, {3, 4, 2}, {8, 4, 4}, {20, 4, 4}, {21, 4, 5}, {100, 4, 20}, {100, 1, 20}, {5, 1, 1}, {6, 1, 2},
	} {
		var units []string
		for i := range tc.units {
			units = append(units, fmt.Sprint(i))
		}
		got := splitUnits(units, tc.workers)
		if len(got) != tc.chunks {
			t.Errorf("%d units for %d workers: %d chunks, want %d", tc.units, tc.workers, len(got), tc.chunks)
		}
		if all := slices.Concat(got...); !slices.Equal(all, units) {
			t.Errorf("%d units for %d workers: chunks hold %v", tc.units, tc.workers, all)
		}
		for _, c := range got {
			if len(c) == 0 || len(c) > maxChunk {
				t.Errorf("%d units for %d workers: a chunk of %d", tc.units, tc.workers, len(c))
			}
		}
	}
}

func TestRequestedWorkers(t *testing.T) {
	if got := newLimits(7).workers; got != 7 {
		t.Errorf("asked for 7, got %d", got)
	}
	if got := newLimits(0).workers; got < 1 {
		t.Errorf("%d workers", got)
	}
}
