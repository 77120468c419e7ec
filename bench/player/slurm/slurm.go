// Package slurm is the player for clusters that modules/slurm sets up. It runs sbatch on the controller or on a client of the cluster, and reads the
// times of the jobs' events from the log of slurmctld on the controller, which has microseconds and needs no accounting.
//
// The log does not tell when a job is launched. The job itself stamps its first and last instruction, so that there are the events start and
// last of its tasks. Other events have no tasks. With arrays, jobs with the same properties that are submitted one after the other at the same time become a job array, which is one request
// to slurmctld.
package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	slurmengine "github.com/nixbench/nixbench/deploy/engine/slurm"
)

// jobName is the name that all jobs of this player have in SLURM. Clean finds the jobs by this name.
const jobName = "nixbench-bench"

const cleanTimeout = 5 * time.Minute

type Player struct {
	player.Remote
	arrays bool          // equal jobs that are due together become a job array
	poll   time.Duration // time between two reads of the log
	quiet  time.Duration // after this time without events, the player asks SLURM for events that it may have missed
}

// New returns the player for a SLURM cluster. It submits jobs from the node client, or from the controller if client is empty. With
// arrays, equal jobs that are due together are a job array. It runs no command.
func New(c engine.Cluster, client string, arrays bool) player.Player {
	return &Player{
		arrays: arrays,
		Remote: player.Remote{Cluster: c, Engine: "slurm", Role: slurmengine.Controller, Client: client, Programs: programs},
		poll:   time.Second, quiet: 10 * time.Second,
	}
}

// runOnController runs a command on the controller, at most for one minute.
func (p *Player) runOnController(ctx context.Context, argv ...string) ([]byte, error) {
	return p.RunOn(ctx, p.Place().Scheduler, nil, argv...)
}

// Clean implements [player.Player]. If a cancelled job does not end by itself, SLURM kills the job after the time KillWait.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("SLURM has not removed the jobs within %v", cleanTimeout))
	defer cancel()
	err := player.Poll(ctx, engine.PollInterval, func() (bool, error) {
		if _, err := p.runOnController(ctx, "scancel", "--quiet", "--name="+jobName); err != nil {
			return false, err
		}
		left, err := p.listJobs(ctx)
		return err == nil && len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("slurm: cancel the jobs: %w", err)
	}
	return nil
}

// listJobs returns the ids of the player's jobs that have not ended, such as 3 or 4_1.
func (p *Player) listJobs(ctx context.Context) (map[string]bool, error) {
	out, err := p.runOnController(ctx, "squeue", "--noheader", "--array", "--name="+jobName, "--format=%i")
	if err != nil {
		return nil, fmt.Errorf("list the jobs: %w", err)
	}
	jobs := map[string]bool{}
	for id := range strings.FieldsSeq(string(out)) {
		jobs[id] = true
	}
	return jobs, nil
}

// programs are the names of SLURM's processes, with munged, which signs the messages. The cgroup of slurmd, or the scope of slurmstepd,
// also contains the jobs.
var programs = []string{"slurmctld", "slurmdbd", "slurmd", "slurmstepd", "munged", "sackd"}
