// Package slurm is the player for clusters that modules/slurm sets up. It runs sbatch on the controller or on a client of the cluster, and reads the
// times of the jobs' events from the log of slurmctld on the controller, which has microseconds and needs no accounting.
//
// SLURM starts a job as soon as it has chosen the nodes, so the events bound and start of a job have the same time. The events have no
// tasks. Jobs with the same properties that are submitted one after the other at the same time become a job array, which is one request
// to slurmctld.
package slurm

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	slurmengine "github.com/nixbench/nixbench/deploy/engine/slurm"
)

// jobName is the name of all jobs of the player in SLURM, by which Clean finds them.
const jobName = "nixbench-bench"

const cleanTimeout = 5 * time.Minute

// Player implements [player.Player].
type Player struct {
	cluster engine.Cluster
	client  string        // the node on which sbatch runs; empty: the controller
	poll    time.Duration // time between two reads of the log
	quiet   time.Duration // time without events after which the player looks for missing ones
	doubts  []string      // about the last Play
	clocks  player.Clocks // of the last Play
}

// New returns the player of a cluster. It submits jobs from a client, or from the controller if client is empty. It runs no command.
func New(c engine.Cluster, client string) player.Player {
	return &Player{cluster: c, client: client, poll: time.Second, quiet: 10 * time.Second}
}

// shell runs commands on a node.
func (p *Player) shell(node string) player.Shell {
	return player.Shell{RunOn: p.cluster.Run, Node: node, Engine: "slurm", Role: slurmengine.Controller}
}

// run runs a command on the controller, at most for one minute.
func (p *Player) run(ctx context.Context, argv ...string) ([]byte, error) {
	return p.shell(p.Place().Scheduler).Run(ctx, nil, argv...)
}

// runOn runs a command on a node until ctx ends.
func (p *Player) runOn(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	return p.shell(node).RunLong(ctx, stdin, argv...)
}

// Place implements [player.Commander].
func (p *Player) Place() player.Place {
	controller := p.cluster.FirstOf(slurmengine.Controller)
	return player.Place{Commands: cmp.Or(p.client, controller), Scheduler: controller}
}

// CommandUsage implements [player.Commander].
func (p *Player) CommandUsage(ctx context.Context) (player.CommandUsage, error) {
	return player.ReadCommandUsage(ctx, p.cluster.Run, p.Place().Scheduler)
}

// Doubts implements [player.Doubter].
func (p *Player) Doubts() []string { return p.doubts }

// Clocks implements [player.Clocked]. It returns the clock of the controller, whose log has the times of the events.
func (p *Player) Clocks() player.Clocks { return p.clocks }

// Clean implements [player.Player]. A job that does not react to its end is removed by SLURM after KillWait.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("SLURM has not removed the jobs within %v", cleanTimeout))
	defer cancel()
	for {
		if _, err := p.run(ctx, "scancel", "--quiet", "--name="+jobName); err != nil {
			return fmt.Errorf("slurm: cancel the jobs: %w", err)
		}
		left, err := p.listJobs(ctx)
		switch {
		case err != nil:
			return err
		case len(left) == 0:
			return nil
		case !engine.Sleep(ctx, engine.PollInterval):
			return fmt.Errorf("slurm: %d jobs remain: %w", len(left), context.Cause(ctx))
		}
	}
}

// listJobs returns the ids of the player's jobs that have not ended, such as 3 or 4_1.
func (p *Player) listJobs(ctx context.Context) (map[string]bool, error) {
	out, err := p.run(ctx, "squeue", "--noheader", "--array", "--name="+jobName, "--format=%i")
	if err != nil {
		return nil, fmt.Errorf("slurm: list the jobs: %w", err)
	}
	jobs := map[string]bool{}
	for id := range strings.FieldsSeq(string(out)) {
		jobs[id] = true
	}
	return jobs, nil
}

// programs are the programs of SLURM, with munged, which signs its messages. slurmstepd is not among them: one runs for each step of a job, and ends with
// it.
var programs = []string{"slurmctld", "slurmdbd", "slurmd", "munged", "sackd"}

// Usage implements [player.Player]. The usage of slurmd is the sum over all compute nodes.
func (p *Player) Usage(ctx context.Context) (map[string]player.Usage, error) {
	var nodes []string
	for _, m := range p.cluster.Members {
		nodes = append(nodes, m.Node)
	}
	usage, err := player.ReadUsage(ctx, p.cluster.Run, nodes, programs)
	if err != nil {
		return nil, fmt.Errorf("slurm: read the usage: %w", err)
	}
	return usage, nil
}
