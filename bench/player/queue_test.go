package player

import (
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/workload"
)

// TestQueue: jobs are due in the order of their times. A held job is due when the last of its jobs has ended and its think time has passed.
func TestQueue(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return start.Add(workload.Seconds(seconds)) }
	jobs, err := workload.Prepare([]workload.Job{
		{ID: "a"}, {ID: "b", After: []string{"a"}}, {ID: "c", After: []string{"a", "b"}, Think: 3}, {ID: "d", Submit: 5}, {ID: "e", Submit: 9, After: []string{"a"}, Think: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(jobs, start, func(j workload.Job) bool { return j.Think > 0 })
	check := func(now float64, next float64, want ...string) {
		t.Helper()
		var got []string
		for _, j := range q.Due(at(now)) {
			got = append(got, j.ID)
		}
		if at := q.Next(at(100)).Sub(start).Seconds(); !slices.Equal(got, want) || at != next {
			t.Errorf("at %v, %q are due, and the next at %v; want %q and %v", now, got, at, want, next)
		}
	}
	check(-1, 0)
	check(0, 0, "a", "b") // b need not be held
	q.Remove(1)
	check(0, 0, "b")
	q.Remove(1)
	check(4, 5)
	q.End("a", at(1))
	check(4, 5)
	q.End("b", at(1.5))
	check(4, 4.5)
	check(10, 4.5, "c", "d", "e")
	if q.IsHolding() || jobs[0].ID != "a" || jobs[4].ID != "e" {
		t.Errorf("jobs are held, or the list of jobs has changed: %+v", jobs)
	}
	q.Remove(3)
	check(10, 100)
}
