// Package null is a player without a cluster. Its scheduler is ideal: it places jobs in the order of their submission as soon as the
// nodes have room, and takes no time. Its results are the best that a scheduler without backfilling can reach with the same nodes.
package null

import (
	"container/heap"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Options are the properties of the scheduler and of its nodes.
type Options struct {
	Rate  float64 // maximum number of jobs that are placed per second; 0: no maximum
	Nodes int     // number of nodes; 0: a new node for each task
	CPUs  int     // processors of each node; 0: 1
}

// New returns a player.
func New(o Options) player.Player {
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	return &null{o}
}

type null struct{ o Options }

// Limits implements [player.Player].
func (n *null) Limits(context.Context) ([]player.Limit, error) {
	if n.o.Rate == 0 {
		return nil, nil
	}
	value := strconv.FormatFloat(n.o.Rate, 'g', -1, 64)
	return []player.Limit{{Name: "null: rate", Value: value, Rate: n.o.Rate, Kind: player.Bound}}, nil
}

// Clean implements [player.Player]. The jobs exist only while Play runs.
func (n *null) Clean(context.Context) error { return nil }

// Usage implements [player.Player].
func (n *null) Usage(context.Context) (map[string]player.Usage, error) { return nil, nil }

// Play implements [player.Player].
func (n *null) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	s := newScheduler(n.o, jobs, send)
	for i, j := range jobs {
		for _, a := range j.After {
			s.waitsFor[a] = append(s.waitsFor[a], i)
		}
		s.blockers[i] = len(j.After)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	start := begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		for ; next < len(jobs) && !time.Now().Before(due(jobs[next], start)); next++ {
			s.release(next)
		}
		now := time.Now()
		s.advance(now)
		if s.ended == len(jobs) {
			return nil
		}
		wake := now.Add(time.Hour)
		for _, t := range s.nextTimes() {
			wake = earlier(wake, t)
		}
		if next < len(jobs) {
			wake = earlier(wake, due(jobs[next], start))
		}
		timer.Reset(time.Until(wake))
	}
}

// due returns the time at which a job is submitted.
func due(j workload.Job, start time.Time) time.Time {
	return start.Add(time.Duration(j.Submit * float64(time.Second)))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// scheduler is the state of a trial. Jobs are indexes of jobs.
type scheduler struct {
	o        Options
	jobs     []workload.Job
	send     func(player.Event)
	waitsFor map[string][]int // the jobs that name a job in After
	blockers []int            // by job: how many jobs of After have not ended
	isDue    []bool
	queue    []queued // jobs that are not placed, in the order of submission
	running  ends
	free     []int     // by node: free processors
	freed    time.Time // when a job last ended
	slot     time.Time // when the rate allows to place the next job
	created  int       // number of nodes that were created, if they are not limited
	ended    int
}

type queued struct {
	job int
	at  time.Time // when the job was submitted
}

func newScheduler(o Options, jobs []workload.Job, send func(player.Event)) *scheduler {
	s := &scheduler{o: o, jobs: jobs, send: send, waitsFor: map[string][]int{}, blockers: make([]int, len(jobs)),
		isDue: make([]bool, len(jobs)), free: make([]int, o.Nodes)}
	for i := range s.free {
		s.free[i] = o.CPUs
	}
	return s
}

// release marks a job as due and submits it, unless it waits for other jobs.
func (s *scheduler) release(job int) {
	s.isDue[job] = true
	if s.blockers[job] == 0 {
		s.submit(job)
	}
}

// submit puts a job into the queue.
func (s *scheduler) submit(job int) {
	j := s.jobs[job]
	now := time.Now()
	s.send(player.Event{Time: now, Kind: player.Submit, Job: j.ID})
	if s.o.Nodes > 0 && (j.Nodes > s.o.Nodes || s.perNode(j) > s.o.CPUs) {
		text := fmt.Sprintf("%d nodes with %d processors each cannot run the job", s.o.Nodes, s.o.CPUs)
		s.send(player.Event{Time: now, Kind: player.Failed, Job: j.ID, Text: text})
		s.end(job)
		return
	}
	s.send(player.Event{Time: now, Kind: player.Created, Job: j.ID})
	s.queue = append(s.queue, queued{job, now})
}

// advance places and ends jobs until the time now.
func (s *scheduler) advance(now time.Time) {
	s.place(now)
	for len(s.running) > 0 && !s.running[0].at.After(now) {
		r := heap.Pop(&s.running).(run)
		s.finish(r)
		s.place(now)
	}
}

// nextTimes returns the times at which the scheduler next has something to do.
func (s *scheduler) nextTimes() []time.Time {
	var out []time.Time
	if len(s.running) > 0 {
		out = append(out, s.running[0].at)
	}
	if now := time.Now(); len(s.queue) > 0 && s.slot.After(now) {
		out = append(out, s.slot)
	} else if len(s.queue) > 0 && s.fits(s.jobs[s.queue[0].job]) {
		out = append(out, now)
	}
	return out
}

// perNode returns the number of processors that a job uses on each of its nodes.
func (s *scheduler) perNode(j workload.Job) int { return (j.Tasks + j.Nodes - 1) / j.Nodes * j.CPUs }

// fits reports whether enough nodes have room for a job.
func (s *scheduler) fits(j workload.Job) bool { return s.o.Nodes == 0 || len(s.nodesFor(j)) == j.Nodes }

// nodesFor returns the first nodes that have room for a job.
func (s *scheduler) nodesFor(j workload.Job) []int {
	var out []int
	for node := 0; node < len(s.free) && len(out) < j.Nodes; node++ {
		if s.free[node] >= s.perNode(j) {
			out = append(out, node)
		}
	}
	return out
}

// place starts the jobs at the head of the queue that fit and that the rate allows.
func (s *scheduler) place(now time.Time) {
	for len(s.queue) > 0 && !s.slot.After(now) {
		q := s.queue[0]
		j := s.jobs[q.job]
		var nodes []int
		if s.o.Nodes == 0 {
			for range j.Nodes {
				nodes = append(nodes, s.created)
				s.created++
			}
		} else if nodes = s.nodesFor(j); len(nodes) < j.Nodes {
			return
		}
		s.queue = s.queue[1:]
		at := later(q.at, s.slot)
		if s.o.Nodes > 0 {
			at = later(at, s.freed)
			for _, node := range nodes {
				s.free[node] -= s.perNode(j)
			}
		}
		if s.o.Rate > 0 {
			s.slot = at.Add(time.Duration(float64(time.Second) / s.o.Rate))
		}
		s.report(j, nodes, at, player.Bound, player.Start)
		heap.Push(&s.running, run{q.job, nodes, at.Add(time.Duration(j.Runtime * float64(time.Second)))})
	}
}

// report sends events of a job, and of its tasks if it has several.
func (s *scheduler) report(j workload.Job, nodes []int, at time.Time, kinds ...string) {
	for _, kind := range kinds {
		if j.Tasks == 1 {
			s.send(player.Event{Time: at, Kind: kind, Job: j.ID, Node: nodeName(nodes[0])})
			continue
		}
		for task := range j.Tasks {
			s.send(player.Event{Time: at, Kind: kind, Job: j.ID, Task: task + 1, Node: nodeName(nodes[task%len(nodes)])})
		}
		s.send(player.Event{Time: at, Kind: kind, Job: j.ID})
	}
}

func nodeName(node int) string { return "null-" + strconv.Itoa(node+1) }

// finish ends a job that has run.
func (s *scheduler) finish(r run) {
	j := s.jobs[r.job]
	if s.o.Nodes > 0 {
		for _, node := range r.nodes {
			s.free[node] += s.perNode(j)
		}
		s.freed = r.at
	}
	s.report(j, r.nodes, r.at, player.Finish)
	s.end(r.job)
}

// end submits the jobs that have waited only for this one.
func (s *scheduler) end(job int) {
	s.ended++
	for _, w := range s.waitsFor[s.jobs[job].ID] {
		if s.blockers[w]--; s.blockers[w] == 0 && s.isDue[w] {
			s.submit(w)
		}
	}
}

// run is a job that runs until a time.
type run struct {
	job   int
	nodes []int
	at    time.Time
}

// ends is a heap of running jobs, with the first to end first.
type ends []run

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(run)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
