package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

// Play implements [player.Player]. It runs one script with sbatch commands after the other. Jobs that become due while a script
// runs are submitted together by the next script.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	t := newTrial(jobs, p.Place())
	var config map[string]string
	var cursor string
	return p.Measure(ctx, player.Measurement{
		Jobs: jobs, Stamps: player.FileStamps, JobOf: t.jobOf,
		SetUp: func(ctx context.Context) (err error) {
			if config, err = p.readConfig(ctx); err == nil {
				err = checkLogLevel(config)
			}
			if err == nil {
				err = p.waitForClient(ctx)
			}
			if err == nil {
				cursor, err = p.logEnd(ctx)
			}
			return err
		},
		Follow: func(ctx context.Context, start time.Time) error {
			if err := p.follow(ctx, t, p.arraySize(config), start, cursor); err != nil {
				return err
			}
			return t.checkComplete()
		},
		Events: func(map[string]player.Clocks) []player.Event { return t.events }, Capacity: t.submissions.Rate,
	}, begin, send)
}

func (p *Player) follow(ctx context.Context, t *trial, arraySize int, start time.Time, cursor string) error {
	t.ahead = p.ClockBefore(t.place.Scheduler).Offset
	t.queue = player.NewQueue(t.jobs, start, func(j workload.Job) bool { return j.Think > 0 }) // slurmctld itself holds the other jobs with After
	submitting := false
	quiet := time.Now() // when the last event happened, or when the player last looked for missing events
	return player.Loop{
		Poll: p.poll, Tasks: 1, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Submit: func(now time.Time) (player.Task, time.Time) {
			jobs := t.queue.Due(now)
			if len(jobs) == 0 {
				return nil, t.queue.Next(now.Add(p.poll))
			}
			cs, rest := commands(jobs, arraySize)
			text := script(cs, t.openID)
			t.queue.Remove(len(jobs) - len(rest))
			submitting, quiet = true, now
			return func() func() error {
				answers, err := p.submit(ctx, text, len(cs))
				return func() error {
					if submitting, quiet = false, time.Now(); err != nil {
						return fmt.Errorf("slurm: submit jobs: %w", err)
					}
					t.addAnswers(cs, answers)
					return nil
				}
			}, now
		},
		Read: func() func() (func() error, error) {
			from, look := cursor, time.Since(quiet) > p.quiet
			return func() (func() error, error) {
				var alive map[string]bool // the ids of jobs that have not ended before the log is read
				var err error
				if look {
					if alive, err = p.listJobs(ctx); err != nil {
						return nil, fmt.Errorf("slurm: %w", err)
					}
				}
				records, next, err := p.readLog(ctx, from)
				return func() error {
					cursor = next
					if t.addRecords(records) || look {
						quiet = time.Now()
					}
					if !look || submitting {
						return nil
					}
					return t.checkMissing(alive)
				}, err
			}
		},
		Last: func(ctx context.Context) {
			if records, _, err := p.readLog(ctx, cursor); err == nil {
				t.addRecords(records)
			}
		},
	}.Run(ctx)
}

// submit runs a script with sbatch commands and returns the answers to the commands. commands is the number of the commands.
func (p *Player) submit(ctx context.Context, script string, commands int) ([]answer, error) {
	out, err := p.RunLong(ctx, p.Place().Commands, strings.NewReader(script), "bash", "-s")
	if err != nil {
		return nil, err
	}
	return parseAnswers(out, commands)
}

// clientTimeout is how long a client (a node that only submits jobs) may take to get the configuration of the cluster.
const clientTimeout = 30 * time.Second

// waitForClient waits until the commands of SLURM work on the client (the node that submits jobs). After its boot, a client has
// to get the configuration from the controller.
func (p *Player) waitForClient(ctx context.Context) error {
	if p.Client == "" {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var last error
	err := engine.Poll(wait, engine.PollInterval, func() (bool, error) {
		_, err := p.RunLong(wait, p.Client, nil, "scontrol", "ping")
		if last == nil || wait.Err() == nil { // an error of a command that was ended by the time limit is no reason
			last = err
		}
		return err == nil, nil
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("slurm: the client does not reach slurmctld within %v: %w; journalctl -u sackd on %s shows why", clientTimeout, last, p.Client)
}
