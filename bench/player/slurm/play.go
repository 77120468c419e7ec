package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Play implements [player.Player]. It runs one script with sbatch commands after the other. Jobs that become due while a script
// runs are submitted together by the next script. Play sends the events at the end, when it has read the clocks again.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	config, err := p.readConfig(ctx)
	if err == nil {
		err = checkLogLevel(config)
	}
	if err == nil {
		err = p.waitForClient(ctx)
	}
	place := p.Place()
	var controller, client player.Clock
	if err == nil {
		controller, err = p.ReadClock(ctx, place.Scheduler)
	}
	if client = controller; err == nil && place.Commands != place.Scheduler {
		client, err = p.ReadClock(ctx, place.Commands)
	}
	var cursor string
	if err == nil {
		cursor, err = p.logEnd(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	t := newTrial(jobs)
	err = p.follow(ctx, t, arraySize(config), begin(), cursor)
	onController := p.ReadClockAgain(ctx, place.Scheduler, controller)
	onClient := onController
	if place.Commands != place.Scheduler {
		var doubts []string
		onClient, doubts = player.ReadClockAgain(ctx, client, p.DateOn(place.Commands))
		p.Doubt(place.Commands, doubts...)
	}
	for _, e := range t.submissions {
		e.Time = onClient.Local(e.Time)
		send(e)
	}
	for _, e := range t.events {
		e.Time = onController.Local(e.Time)
		send(e)
	}
	return err
}

// submission contains the sbatch commands of a script, and the answers to them.
type submission struct {
	commands []command
	answers  []answer
}

// follow submits jobs and reads the log of slurmctld until all jobs have ended.
func (p *Player) follow(ctx context.Context, t *trial, arraySize int, start time.Time, cursor string) error {
	next, submitting := 0, false
	quiet := time.Now() // when the last event happened, or when the player last looked for missing events
	err := player.Loop{
		Poll: p.poll, Tasks: 1, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Submit: func(now time.Time) (player.Task, time.Time) {
			last := next
			for last < len(t.jobs) && !due(t.jobs[last], start).After(now) {
				last++
			}
			if last == len(t.jobs) && next == last {
				return nil, now.Add(p.poll)
			} else if next == last {
				return nil, due(t.jobs[next], start)
			}
			cs, rest := commands(t.jobs[next:last], arraySize)
			text := script(cs, t.openID)
			next, submitting, quiet = last-len(rest), true, now
			return func() func() error {
				answers, err := p.submit(ctx, text, len(cs))
				return func() error {
					if submitting, quiet = false, time.Now(); err != nil {
						return fmt.Errorf("slurm: submit jobs: %w", err)
					}
					t.addAnswers(submission{cs, answers})
					return nil
				}
			}, now
		},
		Read: func() func() (func() error, error) {
			from, look := cursor, time.Since(quiet) > p.quiet
			return func() (func() error, error) {
				r, err := p.readNext(ctx, from, look)
				return func() error {
					cursor = r.cursor
					if t.addRecords(r.records) || look {
						quiet = time.Now()
					}
					if !look || submitting {
						return nil
					}
					return t.checkMissing(r.alive)
				}, err
			}
		},
		Last: func(ctx context.Context) {
			if records, _, err := p.readLog(ctx, cursor); err == nil {
				t.addRecords(records)
			}
		},
	}.Run(ctx)
	if err != nil {
		return err
	}
	return t.checkComplete()
}

// submit runs a script with sbatch commands and returns the answers to the commands. commands is the number of the commands.
func (p *Player) submit(ctx context.Context, script string, commands int) ([]answer, error) {
	out, err := p.RunLong(ctx, p.Place().Commands, strings.NewReader(script), "bash", "-s")
	if err != nil {
		return nil, err
	}
	return parseAnswers(out, commands)
}

// due returns the time at which a job is submitted.
func due(j workload.Job, start time.Time) time.Time {
	return start.Add(time.Duration(j.Submit * float64(time.Second)))
}

// reading is the result of one read of slurmctld's log.
type reading struct {
	records []record
	cursor  string
	alive   map[string]bool // the ids of jobs that had not ended before the log was read; nil unless the read looked for missing events
}

// readNext reads the log of slurmctld. If look is set, it first lists the jobs that have not ended.
func (p *Player) readNext(ctx context.Context, cursor string, look bool) (r reading, err error) {
	if look {
		if r.alive, err = p.listJobs(ctx); err != nil {
			return r, err
		}
	}
	r.records, r.cursor, err = p.readLog(ctx, cursor)
	return r, err
}
