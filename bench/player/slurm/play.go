package slurm

import (
	"context"
	"fmt"
	"slices"
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
	return p.Measure(ctx, player.Measurement{
		Jobs: jobs, Stamps: player.FileStamps, JobOf: t.jobOf,
		SetUp: func(ctx context.Context) (err error) {
			if config, err = p.readConfig(ctx); err != nil {
				return err
			}
			if level := config["SlurmctldDebug"]; slices.Contains([]string{"quiet", "fatal", "error"}, level) {
				return fmt.Errorf("slurm: slurmctld does not log the events of jobs: set SlurmctldDebug to info instead of %s", level)
			}
			return p.waitForClient(ctx)
		},
		Follow: func(ctx context.Context, start time.Time) error {
			if err := p.follow(ctx, t, p.arraySize(config), start); err != nil {
				return err
			}
			return t.checkComplete()
		},
		Events: func(map[string]player.Clocks) []player.Event { return t.events }, Capacity: t.submissions.Rate,
	}, begin, send)
}

// clockSpare is how long before the start of the workload the player begins to read the log, because clocks may be set back. Records of earlier
// jobs do no harm.
const clockSpare = 10 * time.Second

func (p *Player) follow(ctx context.Context, t *trial, arraySize int, start time.Time) error {
	t.ahead = p.ClockBefore(t.place.Scheduler).Offset
	position := fmt.Sprintf("--since=@%d", start.Add(t.ahead-clockSpare).Unix())
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
			cs := commands(jobs, arraySize)
			text := script(cs, t.openID)
			for _, c := range cs {
				t.queue.Remove(len(c))
			}
			submitting, quiet = true, now
			return func() func() error {
				out, err := p.RunLong(ctx, p.Place().Commands, strings.NewReader(text), "bash", "-s")
				var answers []answer
				if err == nil {
					answers, err = parseAnswers(out, len(cs))
				}
				return func() error {
					if submitting, quiet = false, time.Now(); err != nil {
						return fmt.Errorf("slurm: submit jobs: %w", err)
					}
					t.addAnswers(cs, answers)
					return nil
				}
			}, now
		},
		Read: func(last bool) player.Reading {
			from, look := position, !last && time.Since(quiet) > p.quiet
			return func(ctx context.Context) (func() error, error) {
				var alive map[string]bool // the ids of jobs that have not ended before the log is read
				var err error
				if look {
					if alive, err = p.listJobs(ctx); err != nil {
						return nil, fmt.Errorf("slurm: %w", err)
					}
				}
				records, next, err := p.readLog(ctx, from)
				return func() error {
					position = next
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
	}.Run(ctx)
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
	err := player.Poll(wait, engine.PollInterval, func() (bool, error) {
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
