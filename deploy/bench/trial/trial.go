// Package trial computes the metrics of a trial from its events.
package trial

import (
	"time"

	"github.com/nixbench/nixbench/deploy/bench/player"
	"github.com/nixbench/nixbench/deploy/bench/workload"
)

// Result is what a trial has measured.
type Result struct {
	Jobs     int                `json:"jobs"`
	Tasks    int                `json:"tasks"`
	Finished int                `json:"finished"` // jobs that have ended without an error
	Failed   int                `json:"failed"`
	Complete bool               `json:"complete"` // all jobs finished within the time limit
	Began    time.Time          `json:"began"`
	Ended    time.Time          `json:"ended"`
	Metrics  map[string]float64 `json:"metrics"` // by name, see Metrics
}

// Measure is written by another change.
func Measure(jobs []workload.Job, began time.Time, events []player.Event, nodes, cpus int) Result {
	return Result{Jobs: len(jobs), Metrics: map[string]float64{}}
}
