// Package flux is the player for instances of Flux that modules/flux sets up. A player submits the jobs of a benchmark. For the
// time of a workload, this player runs program.py on the leader. It is in Python because only Flux's modules for Python can read
// the journal of the job manager, which has the events of all jobs with microseconds. `flux submit` would start Python for each
// command. program.py sends requests without waiting for their answers, and writes the events to a file.
//
// The times are those in the jobs' event logs. A job is created at the event submit, placed at alloc, launched at start, and
// ends at finish, or at clean if it was cancelled before it ran. The events do not name tasks, which stamp their own first and last
// instruction. Flux starts all tasks of a job together, so each job is a gang.
package flux

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
	fluxengine "github.com/nixbench/nixbench/deploy/engine/flux"
)

// jobName is the name that all jobs of this player have in Flux. Clean finds the jobs by this name.
const jobName = "nixbench-bench"

const cleanTimeout = 5 * time.Minute

type Player struct {
	player.Remote
	program player.Tail[line] // program.py, which submits jobs on the leader and writes their events to a file
}

// New returns the player for the Flux instance of a cluster. It runs no command.
func New(c engine.Cluster) player.Player {
	p := &Player{
		Remote:  player.Remote{Cluster: c, Engine: "flux", Role: fluxengine.Leader, Programs: programs},
		program: player.Tail[line]{Unit: unit, What: "flux: read the events", Parse: parseLine, Poll: time.Second, Quiet: 10 * time.Second},
	}
	p.program.Run = p.Run
	return p
}

// cancelScript cancels the jobs of the player that have not ended, and prints their ids. The script runs as root, and the jobs
// belong to the owner of the instance: without -A, flux jobs would list only the jobs of the caller. flux cancel starts Python,
// so one call cancels many jobs. The call fails if one of the jobs has ended meanwhile; the next call does not list that job.
const cancelScript = `jobs=$(flux jobs --no-header -A --count=0 --filter=pending,running --name=` + jobName + ` --format='{id.dec}') || exit
[ -z "$jobs" ] || echo "$jobs" | xargs -n 1000 flux cancel > /dev/null 2>&1 || :
echo "$jobs"
`

// Clean implements [player.Player]. It first stops program.py, which could still submit jobs, and then cancels the jobs. If a
// cancelled job does not end by itself, Flux kills it after some time.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("the jobs have not ended within %v", cleanTimeout))
	defer cancel()
	if _, err := p.program.RunScript(ctx, unit.StopScript()); err != nil {
		return fmt.Errorf("flux: stop the program that submits jobs: %w", err)
	}
	err := player.Poll(ctx, p.program.Poll, func() (bool, error) {
		left, err := p.program.RunScript(ctx, cancelScript)
		return err == nil && len(bytes.TrimSpace(left)) == 0, err
	})
	if err != nil {
		return fmt.Errorf("flux: cancel the jobs: %w", err)
	}
	return nil
}

// programs are the names of Flux's processes. A broker's name ends with its rank. The cgroup of a broker contains the schedulers in Python,
// the programs that check the requests of jobs, and the jobs.
var programs = []string{"flux-broker-*"}

// Play implements [player.Player]. program.py submits the jobs on the leader.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if err := checkJobs(jobs); err != nil {
		return err
	}
	leader := p.Place().Scheduler
	t := newTrial(leader)
	defer p.program.Stop(ctx)
	return p.Measure(ctx, player.Measurement{
		Jobs: jobs, Stamps: player.FileStamps, JobOf: func(id string, task int) (string, int) { return id, task },
		SetUp: func(ctx context.Context) error { return p.startProgram(ctx, jobs) },
		Follow: func(ctx context.Context, start time.Time) error {
			if err := p.begin(ctx, start.Add(p.ClockBefore(leader).Offset)); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
			done := func() bool { return len(t.ended) == len(jobs) }
			return player.Loop{Poll: p.program.Poll, Done: done, Read: p.program.Read(t.addLines)}.Run(ctx)
		},
		Events: func(map[string]player.Clocks) []player.Event { return t.events }, Capacity: t.submissions.Rate,
	}, begin, send)
}
