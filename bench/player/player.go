// Package player is the interface between a benchmark and the scheduler of one engine. A player submits the jobs of a workload at their
// times, without waiting for earlier jobs, and reports when the scheduler created, placed, started and finished each one.
package player

import (
	"cmp"
	"context"
	"time"

	"github.com/nixbench/nixbench/bench/workload"
)

// Kinds of events, in the order in which a job has them. A scheduler need not have all of them.
const (
	Submit   = "submit"   // the player submits the job; the intended time is in the workload
	Created  = "created"  // the scheduler has accepted the job; for a task: the object that the scheduler places exists
	Admitted = "admitted" // the scheduler may place the job: the jobs before it have ended, and it is not held
	Bound    = "bound"    // the scheduler has chosen the node
	Launched = "launched" // the scheduler reports that the task or job runs
	Start    = "start"    // the first instruction of the task or job, as the task itself reports it
	Last     = "last"     // the last instruction of the task or job, as the task itself reports it
	Finish   = "finish"   // the scheduler reports that the task or job has ended without an error
	Failed   = "failed"   // the scheduler reports that the task or job has ended with an error, or has refused it
)

// Kinds has all kinds of events.
var Kinds = []string{Submit, Created, Admitted, Bound, Launched, Start, Last, Finish, Failed}

// Event is something that happened to a job or to one of its tasks. Its time is by the clock of this machine.
type Event struct {
	Time time.Time `json:"time"` // with microseconds
	Kind string    `json:"kind"`
	Job  string    `json:"job"`
	Task int       `json:"task,omitempty"` // number of the task, from 1; 0: the event is about the whole job
	Node string    `json:"node,omitempty"`
	Text string    `json:"text,omitempty"` // why a job failed
	// Clock is the node whose clock has shown Time, until [Remote.Measure] has converted Time to the clock of this machine.
	Clock string `json:"-"`
}

// Limit is a limit of the scheduler or its clients that can determine a result.
type Limit struct {
	Name  string  `json:"name"`           // name of the limit in the scheduler's documentation, such as kube-scheduler: kube-api-qps
	Value string  `json:"value"`          // as configured
	Rate  float64 `json:"rate,omitempty"` // maximum number of events per second that the limit allows; 0: the limit is not a rate
	Kind  string  `json:"kind,omitempty"` // the kind of events (such as Bound) that Rate limits
}

// NewLimit returns a limit that is not a rate. If value is empty, the limit has the value byDefault, marked as the default.
func NewLimit(name, value, byDefault string) Limit {
	return Limit{Name: name, Value: cmp.Or(value, byDefault+" (default)")}
}

// Player submits jobs to the scheduler of a running cluster.
type Player interface {
	// Limits returns the limits with which the scheduler runs.
	Limits(ctx context.Context) ([]Limit, error)
	// Play prepares the player, and then calls begin once. begin returns the start of the workload, from which the submission
	// times of jobs count. Play then submits the jobs and sends events until all jobs have ended, or ctx ends. It never calls
	// begin and send at the same time. It may send events in any order of their times, and only at the end. When ctx ends, Play
	// returns the cause of that end, after it has sent the events until then.
	Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(Event)) error
	// Clean removes all jobs that Play has submitted, including jobs of an earlier run of nixbench. It waits until the scheduler
	// has none of these jobs.
	Clean(ctx context.Context) error
	// Usage returns the processor seconds that each part of the scheduler (such as slurmctld) has used since it started, and its
	// memory, by part.
	Usage(ctx context.Context) (map[string]Usage, error)
	// Requests returns the requests that programs of the scheduler have counted since they started, or nil if they count none.
	Requests(ctx context.Context) ([]Request, error)
	// Observed returns what the player has observed during the last Play.
	Observed() Observations
}

// Observations are what a player tells about its last Play.
type Observations struct {
	Doubts   []string // reasons why the result is suspect, such as a clock that has changed
	Clocks   *Clocks  // the readings of the clock of the scheduler's node before and after Play; nil: the player converts no times
	Capacity float64  // how many requests to submit jobs per second the player could have sent at most; 0: unknown
	Place    *Place   // where the player ran commands; nil: on this computer
	Image    string   // digest of the image of the jobs
}

// Usage is the processor time and memory that one part of a scheduler has used.
type Usage struct {
	CPU    float64 `json:"cpu"`    // processor seconds since its start
	Memory int64   `json:"memory"` // bytes: the sum over all processes of the largest memory since the last call of Usage
}

// Place says on which nodes a player runs its commands.
type Place struct {
	Commands  string `json:"commands"`  // the node on which the player runs the commands that submit and observe jobs
	Scheduler string `json:"scheduler"` // the node of the scheduler, where the player runs commands, too
}
