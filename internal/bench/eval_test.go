package main

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestEvalProblems(t *testing.T) {
	row := func(nodes, units int, cpu time.Duration) evalRow {
		return evalRow{nodes: nodes, peak: 5, sample: evalSample{Units: units, CPU: cpu}}
	}
	killed, failed, full := row(2, 2, 10), row(2, 2, 10), row(2, 2, 10)
	killed.kills, failed.err, full.peak = 1, errors.New("no"), 9
	byName := row(60, 2, 90)
	byName.byName = true
	rows := []evalRow{row(1, 1, 5), row(5, 2, 10), row(20, 2, 11), row(50, 2, 13), killed, failed, full, byName}
	var got []int
	for _, r := range rows {
		got = append(got, len(r.findProblems(rows, 9)))
	}
	// Only the row of 50 nodes took more than 1.25 times as long as that of 5 nodes with as many systems.
	if want := []int{0, 0, 0, 1, 1, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("problems of the rows: %v, want %v", got, want)
	}
}

func TestParseCounts(t *testing.T) {
	if got, err := parseCounts("1,5,20"); err != nil || !slices.Equal(got, []int{1, 5, 20}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "0", "1,,2", "x", "501"} {
		if got, err := parseCounts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
