package trial

import (
	"testing"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// A gang is placed and finished with its last task, a failed job is not finished, and a job that was not placed has no wait.
func TestDurationsOfGang(t *testing.T) {
	jobs := prepare(t,
		workload.Job{ID: "a", Submit: 1, Runtime: 1}, workload.Job{ID: "b", Nodes: 2, Runtime: 1, Gang: true},
		workload.Job{ID: "c", Runtime: 1, After: []string{"b"}}, workload.Job{ID: "d", Runtime: 1},
	)
	events := []player.Event{
		event(2, player.Created, "a", 0), event(4, player.Bound, "a", 0), event(5, player.Start, "a", 0), event(5.5, player.Last, "a", 0), event(6, player.Finish, "a", 0),
		event(1, player.Created, "b", 1), event(3, player.Created, "b", 2), event(3.5, player.Bound, "b", 1), event(4.5, player.Bound, "b", 2),
		event(4.6, player.Start, "b", 1), event(4.75, player.Start, "b", 2), event(6, player.Last, "b", 1), event(8, player.Last, "b", 2),
		event(7, player.Finish, "b", 1), event(9, player.Finish, "b", 2),
		event(8, player.Created, "c", 0), event(10, player.Bound, "c", 0), event(10.25, player.Start, "c", 0), event(11, player.Failed, "c", 0),
		event(0.5, player.Created, "d", 0),
	}
	m := Measure(jobs, began, ended, events, 1, 1).Metrics
	if m["wait_p50"] != 4 || m["schedule_p50"] != 2 {
		t.Errorf("%v", m)
	}
}
