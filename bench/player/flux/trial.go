package flux

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// trial is the state of the jobs during one call of Play.
type trial struct {
	leader      string
	submissions player.Submissions
	events      []player.Event    // with the times of the leader's clock
	jobOf       map[uint64]string // by id in Flux
	early       map[uint64][]line // events whose job id the player does not know yet, or that belong to a job of another user
	ended       map[string]bool
	admitted    map[string]bool
	nodes       map[string]string // on which jobs were placed
	problem     map[string]string // why a job has failed or was cancelled, by job
}

func newTrial(leader string) *trial {
	return &trial{leader: leader, jobOf: map[uint64]string{}, early: map[uint64][]line{}, ended: map[string]bool{},
		admitted: map[string]bool{}, nodes: map[string]string{}, problem: map[string]string{}}
}

// addLines adds the events in lines of program.py. The events of a job may come before the line that contains the job's id.
func (t *trial) addLines(lines []line) {
	for _, l := range lines {
		switch {
		case l.Submit > 0:
			t.add(l.Job, player.Submit, l.Submit)
			t.submissions.Add(1, workload.Seconds(l.Took))
		case l.Refused != "":
			t.fail(l.Job, l.Time, l.Refused)
		case l.Job != "":
			t.jobOf[l.ID] = l.Job
			for _, e := range t.early[l.ID] {
				t.addEvent(l.Job, e)
			}
			delete(t.early, l.ID)
		case l.Event != "":
			if job, ok := t.jobOf[l.ID]; ok {
				t.addEvent(job, l)
			} else {
				t.early[l.ID] = append(t.early[l.ID], l)
			}
		}
	}
}

// addEvent adds an event of a job's event log, which RFC 21 of Flux describes. A job that is cancelled before it runs has no
// event finish.
func (t *trial) addEvent(job string, l line) {
	if t.ended[job] {
		return
	}
	switch l.Event {
	case "submit":
		t.add(job, player.Created, l.Time)
	case "priority": // the first one: the dependencies have ended and the scheduler gets the job; later ones only change its priority
		if !t.admitted[job] {
			t.admitted[job] = true
			t.add(job, player.Admitted, l.Time)
		}
	case "alloc":
		t.nodes[job] = l.Nodes
		t.add(job, player.Bound, l.Time)
	case "start":
		t.add(job, player.Launched, l.Time)
	case "exception":
		if l.Context.Severity == 0 && t.problem[job] == "" {
			t.problem[job] = strings.TrimSuffix(l.Context.Type+": "+l.Context.Note, ": ") // such as `cancel` or `exec: no such file`
		}
	case "finish":
		switch {
		case t.problem[job] != "":
			t.fail(job, l.Time, t.problem[job])
		case l.Context.Status != 0:
			t.fail(job, l.Time, describeStatus(l.Context.Status))
		default:
			t.ended[job] = true
			t.add(job, player.Finish, l.Time)
		}
	case "clean":
		t.fail(job, l.Time, cmp.Or(t.problem[job], "the job has ended without a status"))
	}
}

// describeStatus returns how a task has ended, such as by a signal. status is that of wait(2).
func describeStatus(status int) string {
	if w := syscall.WaitStatus(uint32(status)); w.Signaled() {
		return fmt.Sprintf("signal %d", w.Signal())
	}
	return fmt.Sprintf("exit status %d", status>>8)
}

func (t *trial) add(job, kind string, seconds float64) {
	e := player.Event{Time: time.UnixMicro(int64(math.Round(seconds * 1e6))), Kind: kind, Job: job, Clock: t.leader}
	if kind == player.Bound || kind == player.Launched {
		e.Node = t.nodes[job]
	}
	t.events = append(t.events, e)
}

func (t *trial) fail(job string, seconds float64, text string) {
	t.ended[job] = true
	t.add(job, player.Failed, seconds)
	t.events[len(t.events)-1].Text = text
}
