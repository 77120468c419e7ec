package player

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/bench/workload"
)

// stampFile is the file on each node to which the tasks of jobs append their stamps. It is in memory, so that a stamp does not wait for a
// disk.
const stampFile = "/run/nixbench-bench-stamps"

// AppendStamps is a redirection of a shell that appends stamps to the file from which [Remote.Measure] reads them.
const AppendStamps = " >> " + stampFile

// StampScript returns a script of sh for a task of a job. The script runs the command run, and stamps its own first and last instruction
// with the time of its node's clock: it prints the line `nixbench first JOB TASK SECONDS`, and the same with `last`. job and task are
// words of sh, in which variables are replaced. redirection follows the command that prints. The variable EPOCHREALTIME of bash and busybox
// needs no other process; sh of Debian does not have it.
func StampScript(job, task, run, redirection string) string {
	return `LC_ALL=C
stamp() { echo "nixbench $1 ` + job + ` ` + task + ` ${EPOCHREALTIME:-$(date +%s.%N)}"` + redirection + `; }
stamp first
` + run + `
status=$?
stamp last
exit $status`
}

// SleepCommand returns the command of sh that runs for some seconds.
func SleepCommand(seconds float64) string {
	if seconds <= 0 {
		return "true"
	}
	return "sleep " + strconv.FormatFloat(seconds, 'f', -1, 64)
}

type stamp struct {
	kind, job string // kind is Start or Last
	task      int    // the number that the scheduler has given to the task, from 0
	at        time.Time
}

// parseStamps returns the stamps in the output of a node. The output may contain other lines, and text before each stamp.
func parseStamps(out string) (stamps []stamp) {
	for line := range strings.Lines(out) {
		_, text, found := strings.Cut(line, "nixbench ")
		f := strings.Fields(text)
		if !found || len(f) != 4 {
			continue
		}
		task, err := strconv.ParseUint(f[2], 10, 31)
		at, timeErr := ParseTime(f[3])
		kind := map[string]string{"first": Start, "last": Last}[f[0]]
		if err == nil && timeErr == nil && kind != "" {
			stamps = append(stamps, stamp{kind, f[1], int(task), at})
		}
	}
	return stamps
}

// Measurement is what the player of an engine does in [Remote.Measure].
type Measurement struct {
	Jobs []workload.Job
	// SetUp prepares the submission. It takes none of the time of the workload.
	SetUp func(ctx context.Context) error
	// Follow submits each job of Jobs at its time after start, and reads the events of the jobs until all jobs have ended or ctx ends.
	Follow func(ctx context.Context, start time.Time) error
	// Events returns what has happened. clocks has the clock of each node.
	Events func(clocks map[string]Clocks) []Event
	// Stamps is the command that prints the stamps of the tasks on a node. If it is empty, the tasks print none.
	Stamps []string
	// Capacity returns how many requests to submit jobs per second the player could have sent at most.
	Capacity func() float64
	// JobOf returns the job with an id in a stamp, and the number of a task, from 0.
	JobOf func(id string, task int) (job string, number int)
}

// Submissions adds up how long the requests of a player to submit jobs took.
type Submissions struct {
	requests int
	took     time.Duration
}

// Add adds requests that were sent one after the other.
func (s *Submissions) Add(requests int, took time.Duration) {
	s.requests, s.took = s.requests+requests, s.took+took
}

// Rate returns how many requests per second the player sends if it sends them one after the other, or 0 if it is unknown.
func (s *Submissions) Rate() float64 {
	if s.took <= 0 {
		return 0
	}
	return float64(s.requests) / s.took.Seconds()
}

// FileStamps is the command that prints the stamps which tasks have appended with [AppendStamps].
var FileStamps = []string{"cat", stampFile}

// Measure executes a workload between two readings of the clocks of all nodes. Then it reads the stamps of the jobs, and sends all events
// with times of this machine's clock.
func (r *Remote) Measure(ctx context.Context, m Measurement, begin func() time.Time, send func(Event)) error {
	r.observed = Observations{}
	err := r.readClocks(ctx)
	if err == nil && len(m.Stamps) > 0 && m.Stamps[len(m.Stamps)-1] == stampFile {
		_, err = r.onNodes(ctx, "sh", "-c", "rm -f "+stampFile+" && : > "+stampFile+" && chmod 666 "+stampFile)
	}
	if err == nil {
		err = m.SetUp(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	err = m.Follow(ctx, begin())
	clocks := r.readClocksAgain(ctx)
	r.observed.Capacity = m.Capacity()
	events := append(m.Events(clocks), r.readStamps(ctx, m)...)
	for _, e := range events {
		if e.Clock != "" {
			e.Time, e.Clock = clocks[e.Clock].Local(e.Time), ""
		}
		send(e)
	}
	return err
}

// readStamps returns the events Start and Last of tasks from the stamps on all nodes, also if ctx has ended. A job with one task has the
// events itself. Stamps that cannot be read are a doubt.
func (r *Remote) readStamps(ctx context.Context, m Measurement) (events []Event) {
	if len(m.Stamps) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
	defer cancel()
	outputs, err := r.onNodes(ctx, m.Stamps...)
	if err != nil {
		r.Doubt("", fmt.Sprintf("stamps of jobs could not be read: %v", err))
	}
	tasks := map[string]int{}
	for _, j := range m.Jobs {
		tasks[j.ID] = j.Tasks
	}
	for node, out := range outputs {
		for _, s := range parseStamps(string(out)) {
			job, number := m.JobOf(s.job, s.task)
			if number++; number > tasks[job] {
				continue // of no job of the workload
			}
			if tasks[job] == 1 {
				number = 0
			}
			events = append(events, Event{Time: s.at, Kind: s.kind, Job: job, Task: number, Node: node, Clock: node})
		}
	}
	return events
}

// nodes returns all nodes on which the player runs commands, and on which jobs run.
func (r *Remote) nodes() []string {
	var out []string
	for _, m := range r.Cluster.Members {
		out = append(out, m.Node)
	}
	return out
}

// eachNode calls f for several nodes at a time. It returns the results by node, and the first error after all calls have ended.
func eachNode[T any](nodes []string, f func(node string) (T, error)) (map[string]T, error) {
	out, mu := map[string]T{}, sync.Mutex{}
	var g errgroup.Group
	g.SetLimit(8)
	for _, node := range nodes {
		g.Go(func() error {
			v, err := f(node)
			mu.Lock()
			defer mu.Unlock()
			out[node] = v
			return err
		})
	}
	err := g.Wait()
	return out, err
}

func (r *Remote) onNodes(ctx context.Context, argv ...string) (map[string][]byte, error) {
	return eachNode(r.nodes(), func(node string) ([]byte, error) { return r.RunOn(ctx, node, nil, argv...) })
}

func (r *Remote) readClocks(ctx context.Context) (err error) {
	nodes := r.nodes()
	if r.Client != "" {
		nodes = append(nodes, r.Client)
	}
	r.before, err = eachNode(nodes, func(node string) (Clock, error) { return ReadClock(ctx, r.dateOn(node)) })
	return err
}

// readClocksAgain reads all clocks after a workload, also if ctx has ended. It keeps the reading of the scheduler's clock, with the largest error of all clocks, for [Remote.Observed].
func (r *Remote) readClocksAgain(ctx context.Context) map[string]Clocks {
	mu := sync.Mutex{} // for the doubts
	clocks, _ := eachNode(slices.Sorted(maps.Keys(r.before)), func(node string) (Clocks, error) {
		c, doubts := ReadClockAgain(ctx, r.before[node], r.dateOn(node))
		mu.Lock()
		defer mu.Unlock()
		r.Doubt(node, doubts...)
		return c, nil
	})
	own := clocks[r.Place().Scheduler]
	for _, c := range clocks {
		own.Before.Error = max(own.Before.Error, c.Before.Error, c.After.Error)
	}
	r.observed.Clocks = &own
	return clocks
}
