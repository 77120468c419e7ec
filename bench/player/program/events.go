package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// beginEvent is the event that the user's program prints first.
const beginEvent = "begin"

// clockError is how long before the start of the workload, or after nixbench has read the event, the time of an event may be.
const clockError = time.Second

type line struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	Task  int    `json:"task"`
	Time  int64  `json:"time"` // microseconds since the epoch
	Node  string `json:"node"`
	Text  string `json:"text"`
}

func parseLine(text []byte) (line, error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&l)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return l, nil
		}
		err = errors.New("there is more after the JSON object")
	}
	return l, err
}

// check tests whether the events of one trial (one run of a workload) are valid.
type check struct {
	jobs  map[string]workload.Job // nil: the workload has no list of jobs, and the program decides them
	start time.Time
	seen  map[eventKey]bool // the events that each job and its tasks have had
}

type eventKey struct {
	job, kind string
	task      int
}

func newCheck(jobs []workload.Job, start time.Time) *check {
	c := &check{start: start, seen: map[eventKey]bool{}}
	if len(jobs) > 0 {
		c.jobs = map[string]workload.Job{}
	}
	for _, j := range jobs {
		c.jobs[j.ID] = j
	}
	return c
}

// event returns the event in a line that the program has printed. read is the time at which nixbench read the line.
func (c *check) event(l line, read time.Time) (player.Event, error) {
	at := time.UnixMicro(l.Time)
	key := eventKey{l.ID, l.Event, l.Task}
	j, known := c.jobs[l.ID]
	switch {
	case l.Event == beginEvent:
		return player.Event{}, errors.New("begin is the first event, and there is only one")
	case !slices.Contains(player.Kinds, l.Event):
		return player.Event{}, fmt.Errorf("there is no event %q; there are begin, %s", l.Event, strings.Join(player.Kinds, ", "))
	case l.ID == "":
		return player.Event{}, errors.New("the event has no id of a job")
	case c.jobs != nil && !known:
		return player.Event{}, fmt.Errorf("the workload has no job %q", l.ID)
	case l.Task < 0 || known && l.Task > j.Tasks:
		return player.Event{}, fmt.Errorf("job %s has no task %d; tasks count from 1, and 0 is the whole job", l.ID, l.Task)
	case at.Before(c.start.Add(-clockError)) || at.After(read.Add(clockError)):
		return player.Event{}, fmt.Errorf("the time %d is not between the beginning (%d) and now (%d); it is in microseconds since the epoch", l.Time, c.start.UnixMicro(), read.UnixMicro())
	case c.seen[key]:
		return player.Event{}, fmt.Errorf("job %s has had the event %s already", l.ID, l.Event)
	}
	c.seen[key] = true
	return player.Event{Time: at, Kind: l.Event, Job: l.ID, Task: l.Task, Node: l.Node, Text: l.Text}, nil
}

// hasEnded reports whether a job has ended: the program has reported the end of the whole job, or of each of its tasks.
func (c *check) hasEnded(j workload.Job) bool {
	ends := func(task int) bool {
		return c.seen[eventKey{j.ID, player.Finish, task}] || c.seen[eventKey{j.ID, player.Failed, task}]
	}
	task := 1
	for task <= j.Tasks && ends(task) {
		task++
	}
	return ends(0) || task > j.Tasks
}

// complete returns an error unless the program has reported the end of all jobs. If the workload has no list of jobs, one
// event of a job is enough.
func (c *check) complete() error {
	var missing []string
	if c.jobs == nil {
		if len(c.seen) == 0 {
			return errors.New("it has ended without an event of a job")
		}
		return nil
	}
	for id, j := range c.jobs {
		if !c.hasEnded(j) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("it has ended, and %d of %d jobs have no event finish or failed, such as %s", len(missing), len(c.jobs), missing[0])
}
