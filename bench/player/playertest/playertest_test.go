package playertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Check finds each kind of error.
func TestCheck(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b", Submit: 10, After: []string{"a"}, Think: 5}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0)
	at := func(seconds int, kind, job string) player.Event {
		return player.Event{Time: start.Add(time.Duration(seconds) * time.Second), Kind: kind, Job: job}
	}
	right := []player.Event{
		at(0, player.Submit, "a"), at(1, player.Created, "a"), at(2, player.Bound, "a"), at(2, player.Start, "a"), at(3, player.Finish, "a"),
		at(10, player.Submit, "b"), at(11, player.Created, "b"), at(12, player.Bound, "b"), at(13, player.Finish, "b"),
	}
	if got := Check(jobs, start, right); got != nil {
		t.Errorf("%q", got)
	}
	for want, change := range map[string]func([]player.Event) []player.Event{
		"job a has two events finish":        func(e []player.Event) []player.Event { return append(e, at(4, player.Finish, "a")) },
		"job b has no event finish":          func(e []player.Event) []player.Event { return e[:8] },
		"job a: bound is 1s before created":  func(e []player.Event) []player.Event { e[2].Time, e[3].Time = start, start.Add(time.Second); return e },
		"job b was submitted 1s too early":   func(e []player.Event) []player.Event { e[5].Time = start.Add(9 * time.Second); return e },
		"job b was placed 8s before the end": func(e []player.Event) []player.Event { e[4].Time = start.Add(20 * time.Second); return e },
		"job b was submitted 4s after":       func(e []player.Event) []player.Event { e[4].Time = start.Add(6 * time.Second); return e },
		"an event of an unknown job":         func(e []player.Event) []player.Event { return append(e, at(1, player.Start, "c")) },
		"unexpected event":                   func(e []player.Event) []player.Event { return append(e, at(1, player.Failed, "a")) },
		"an event of an unknown task":        func(e []player.Event) []player.Event { e[3].Task = 2; return e },
		"job a: bound is 1s before admitted": func(e []player.Event) []player.Event { return append(e, at(3, player.Admitted, "a")) },
		"job a: finish is 1s before start":   func(e []player.Event) []player.Event { e[4].Time = start.Add(time.Second); return e },
		"job a: created is 1s before submit": func(e []player.Event) []player.Event { e[1].Time = start.Add(-time.Second); return e },
	} {
		got := Check(jobs, start, change(slices.Clone(right)))
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%s: %q", want, got)
		}
	}
}
