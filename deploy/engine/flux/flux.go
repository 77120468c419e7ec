// Package flux is the engine for instances of Flux that modules/flux sets up. It runs Flux's commands on the leader,
// the node of rank 0, over the SSH connection of the deployment.
//
// All nodes that the instance may ever have are configured. The members are those whose broker is online, and those
// that are drained. A drained compute node is drained in Flux. The leader runs no jobs but all jobs depend on it, so a
// drained leader has stopped queues, and its drain waits for all jobs.
package flux

import (
	"errors"
	"regexp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// Roles of members.
const (
	Leader  = "leader"
	Compute = batch.Compute
)

// Engine implements [engine.Engine] for an instance of Flux.
type Engine struct {
	*client
	batch.Pool[node]
}

// client asks the leader of an instance.
type client struct{ batch.Head }

// New returns the engine of an instance. It runs no command.
func New(c engine.Cluster) *Engine {
	leader := &client{batch.Head{Cluster: c, Kind: "flux", Role: Leader, Absent: errNoLeader, NotSetUp: notSetUpError, Owner: asOwner,
		List: "flux jobs -A", Cancel: "flux cancel", Undrained: "--no-drain does not wait, and ends jobs if the broker restarts"}}
	return &Engine{leader, batch.Pool[node]{Head: &leader.Head, System: leader, Unit: unit, Absent: " is not configured on the leader", Extra: node.describeExtra}}
}

// asOwner begins a command that runs as the owner of the instance, who may submit jobs.
var asOwner = []string{"setpriv", "--reuid=flux", "--regid=flux", "--init-groups", "--"}

// errNoLeader is returned if the hive has no leader, or if it has not been set up yet, so that the instance does not
// exist.
var errNoLeader = errors.New("no leader is set up yet")

// notSetUpError matches the messages of shells and sudo if Flux is not installed, so that the node is no leader yet. A
// broker that does not answer is another error.
var notSetUpError = regexp.MustCompile(`flux: (command )?not found`)
