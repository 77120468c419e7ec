package flux

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	fluxengine "github.com/nixbench/nixbench/deploy/engine/flux"
)

// jobName is the name of all jobs of the player in Flux, by which Clean finds them.
const jobName = "nixbench-bench"

const (
	cleanTimeout = 5 * time.Minute
)

// Player implements [player.Player].
type Player struct {
	cluster engine.Cluster
	poll    time.Duration // time between two reads of the program's lines
	quiet   time.Duration // time without lines after which the player looks whether the program runs
	doubts  []string      // about the last Play
	clocks  player.Clocks // of the last Play
}

// New returns the player of a cluster. It runs no command.
func New(c engine.Cluster) player.Player {
	return &Player{cluster: c, poll: time.Second, quiet: 10 * time.Second}
}

// run runs a command on the leader, at most for one minute.
func (p *Player) run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	leader := p.cluster.FirstOf(fluxengine.Leader)
	return player.Shell{RunOn: p.cluster.Run, Node: leader, Engine: "flux", Role: fluxengine.Leader}.Run(ctx, stdin, argv...)
}

// runScript runs a script on the leader.
func (p *Player) runScript(ctx context.Context, script string) ([]byte, error) {
	return p.run(ctx, strings.NewReader(script), "sh", "-s")
}

// Doubts implements [player.Doubter].
func (p *Player) Doubts() []string { return p.doubts }

// Clocks implements [player.Clocked].
func (p *Player) Clocks() player.Clocks { return p.clocks }

// date reads the clock of the leader.
func (p *Player) date(ctx context.Context) ([]byte, error) { return p.run(ctx, nil, "date", "+%s%N") }

// cancelScript cancels the jobs of the player that have not ended, and prints their ids. Without -A, flux jobs lists those of root, and the owner of
// the instance has submitted them. flux cancel starts Python, so a call cancels many jobs. It fails for a job that has ended meanwhile: the next call
// does not find it.
const cancelScript = `jobs=$(flux jobs --no-header -A --count=0 --filter=pending,running --name=` + jobName + ` --format='{id.dec}') || exit
[ -z "$jobs" ] || echo "$jobs" | xargs -n 1000 flux cancel > /dev/null 2>&1 || :
echo "$jobs"
`

// Clean implements [player.Player]. It stops the program, which may still submit jobs. A job that does not react to its end is killed by Flux
// after some time.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("the jobs have not ended within %v", cleanTimeout))
	defer cancel()
	if _, err := p.runScript(ctx, stopScript); err != nil {
		return fmt.Errorf("flux: stop the program that submits jobs: %w", err)
	}
	for {
		left, err := p.runScript(ctx, cancelScript)
		n := len(strings.Fields(string(left)))
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("flux: cancel the jobs: %w", context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("flux: cancel the jobs: %w", err)
		case n == 0:
			return nil
		case !engine.Sleep(ctx, p.poll):
			return fmt.Errorf("flux: %d jobs remain: %w", n, context.Cause(ctx))
		}
	}
}

// programs are the names of Flux' processes. A broker has its rank in its name, and the job manager and the other modules in C are threads of
// it. Schedulers in Python are processes of their own, and so are the programs that check requests.
var programs = []string{"flux-broker-*", "sched-simple", "sched-fifo", "sched-backfill", "job-validator", "job-frobnicator"}

// Usage implements [player.Player]. The usage of the broker is the sum over all nodes, without the programs of jobs.
func (p *Player) Usage(ctx context.Context) (map[string]player.Usage, error) {
	var nodes []string
	for _, m := range p.cluster.Members {
		nodes = append(nodes, m.Node)
	}
	usage, err := player.ReadUsage(ctx, p.cluster.Run, nodes, programs)
	if err != nil {
		return nil, fmt.Errorf("flux: read the usage: %w", err)
	}
	if u, ok := usage[programs[0]]; ok {
		usage["flux-broker"] = u
		delete(usage, programs[0])
	}
	return usage, nil
}
