package player

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// CommandTimeout is the time limit of commands that answer at once.
const CommandTimeout = time.Minute

// Remote is the part of a player that all schedulers on the nodes of a cluster have in common. It runs commands on nodes, and
// reads clocks and usage.
type Remote struct {
	Cluster  engine.Cluster
	Engine   string   // name of the engine, for errors
	Role     string   // role of the scheduler's node
	Client   string   // the node on which the player submits and observes jobs; empty: the node of the scheduler
	Programs []string // names of the scheduler's processes, or patterns of the shell that match them
	Image    string   // digest of the image of the jobs of the last Play

	before   map[string]Clock // readings of all clocks before the last Play, by node
	observed Observations
}

// Place returns on which nodes the player runs commands.
func (r *Remote) Place() Place {
	scheduler := r.Cluster.FirstOf(r.Role)
	return Place{Commands: cmp.Or(r.Client, scheduler), Scheduler: scheduler}
}

// Run runs a command on the node that submits jobs, at most for [CommandTimeout].
func (r *Remote) Run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	return r.RunOn(ctx, r.Place().Commands, stdin, argv...)
}

// RunOn runs a command on a node, at most for [CommandTimeout].
func (r *Remote) RunOn(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	return r.RunLong(ctx, node, stdin, argv...)
}

// RunLong runs a command on a node until ctx ends.
func (r *Remote) RunLong(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	if node == "" {
		return nil, fmt.Errorf("%s: the hive has no node with the role %s", r.Engine, r.Role)
	}
	return r.Cluster.Run(ctx, node, stdin, argv...)
}

// Requests implements [Player], for schedulers that count none.
func (r *Remote) Requests(context.Context) ([]Request, error) { return nil, nil }

func (r *Remote) Observed() Observations {
	o := r.observed
	o.Place, o.Image = new(r.Place()), r.Image
	return o
}

// dateOn returns a function that reads the clock of a node with the command date.
func (r *Remote) dateOn(node string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return r.RunOn(ctx, node, nil, "date", "+%s.%N") }
}

func (r *Remote) ClockBefore(node string) Clock { return r.before[node] }

// Doubt adds doubts about the last Play. node is the node that is the cause of these doubts.
func (r *Remote) Doubt(node string, doubts ...string) {
	for _, d := range doubts {
		r.observed.Doubts = append(r.observed.Doubts, strings.TrimPrefix(node+": "+d, ": "))
	}
}

//go:embed usage.sh
var usageScript string

const (
	maxComm      = 15               // the length to which the kernel cuts the name of a process
	usageTimeout = 30 * time.Second // for reading the usage on all nodes
)

// Usage implements [Player]. It reads the processor time and memory of the cgroups of the scheduler's programs, which may be patterns of the
// shell. The values are sums over all nodes; programs that do not run are left out.
func (r *Remote) Usage(ctx context.Context) (map[string]Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	argv, full := []string{"sh", "-s", "--", ""}, map[string]string{}
	for _, p := range r.Programs {
		name := p[:min(len(p), maxComm)]
		full[name] = strings.TrimSuffix(p, "-*")
		argv = append(argv, name)
	}
	outputs, err := eachNode(r.nodes(), func(node string) ([]byte, error) {
		return r.Cluster.Run(ctx, node, strings.NewReader(usageScript), argv...)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: read the usage: %w", r.Engine, err)
	}
	total := map[string]Usage{}
	for node, out := range outputs {
		for line := range strings.Lines(string(out)) {
			name, numbers, _ := strings.Cut(strings.TrimSpace(line), "|")
			first, second, _ := strings.Cut(numbers, "|")
			used, errUsed := strconv.ParseUint(first, 10, 63)
			memory, errMemory := strconv.ParseUint(second, 10, 63)
			if errUsed != nil || errMemory != nil {
				return nil, fmt.Errorf("%s: read the usage: %s: unexpected line %.100q", r.Engine, node, line)
			}
			u := total[full[name]]
			total[full[name]] = Usage{CPU: u.CPU + float64(used)/1e6, Memory: u.Memory + int64(memory)}
		}
	}
	return total, nil
}
