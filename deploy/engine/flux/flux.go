// Package flux is the engine for instances of Flux that modules/flux sets up. It runs Flux's commands on the leader,
// the node of rank 0, over the SSH connection of the deployment.
//
// Flux's configuration names all nodes that the instance may ever have. The members are the nodes whose broker is online, and the
// drained nodes. nixbench drains a compute node with Flux's own command. The leader runs no jobs, but all jobs depend on it. So
// nixbench drains the leader by stopping all queues, and waits for the end of all jobs.
package flux

import (
	"context"
	"regexp"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

const (
	Leader  = "leader"
	Compute = batch.Compute
)

var Kind = engine.Kind{
	Name:  "flux",
	Title: "Flux",
	New:   func(c engine.Cluster) engine.Engine { return New(c) },
	Head:  Leader,
	UsageForm: "nixbench exec --on %[1]s -- flux resource list shows the nodes of the instance, " +
		"nixbench exec --on %[1]s -- setpriv --reuid=flux --regid=flux --init-groups flux run --cwd=/ hostname runs a job",
	Help: engine.Help{
		Check: `Flux: the leader answers and starts jobs, and exactly the hive's compute nodes
are online. --deep runs flux run and a batch job on all compute nodes.`,
		Drain: `Flux: a drained node gets no new jobs. apply waits until its jobs have ended,
for at most nixbench.flux.drainTimeout seconds, and cancels none. Before a
change of the leader it stops the queue and waits for the jobs of all nodes.`,
		Remove: `Flux: the broker of a removed compute node is stopped.`,
	},
}

// Engine implements [engine.Engine] for an instance of Flux.
type Engine struct {
	*client
	batch.Pool[node]
}

// client runs Flux's commands on the leader of an instance.
type client struct{ batch.Head }

func New(c engine.Cluster) *Engine {
	leader := &client{batch.Head{Cluster: c, Kind: "flux", Role: Leader, NotSetUp: notSetUpError, Owner: asOwner,
		List: "flux jobs -A", Cancel: "flux cancel", Undrained: "--no-drain does not wait, and ends jobs if the broker restarts"}}
	return &Engine{leader, batch.Pool[node]{Head: &leader.Head, System: leader, Unit: unit}}
}

// asOwner is the first part of a command line: the rest runs as the user flux, the owner of the instance, who may submit jobs.
var asOwner = []string{"setpriv", "--reuid=flux", "--regid=flux", "--init-groups", "--"}

// notSetUpError matches the messages of shells and sudo that the command flux is missing, so that the node is no leader yet. It
// does not match the error of a broker that does not answer.
var notSetUpError = regexp.MustCompile(`flux: (command )?not found`)

// Versions implements [engine.Engine]. Brokers of different versions do not connect to each other, so all nodes of the
// instance must have the same version after a run.
func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	out, err := e.RunOnHead(ctx, "flux", "getattr", "version")
	running := strings.TrimSpace(out)
	if err != nil || running == "" {
		return nil, nil // No error if the leader does not answer: this may be the first deployment, or a deployment that repairs the instance.
	}
	members, err := e.Members(ctx)
	if err != nil {
		return nil, nil
	}
	observed := map[string]string{}
	for name := range members {
		observed[name] = running
	}
	changes, after, err := e.PlanVersions(nodes, observed)
	if err != nil {
		return nil, err
	}
	leader := e.Node()
	for _, m := range e.Cluster.Members {
		if version := after[m.Node]; version != "" && version != after[leader] {
			return changes, engine.NewVersionError("set nixbench.flux.package to the same version on all nodes, and apply to all nodes at once",
				"flux: after this run %s would have version %s, and the leader %s version %s: Flux connects only brokers of the same version", m.Node, version, leader, after[leader])
		}
	}
	return changes, nil
}
