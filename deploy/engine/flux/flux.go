// Package flux is the engine for instances of Flux that modules/flux sets up. It runs Flux's commands on the leader,
// the node of rank 0, over the SSH connection of the deployment.
//
// All nodes that the instance may ever have are configured. The members are those whose broker is online, and those
// that are drained. A drained compute node is drained in Flux. The leader runs no jobs but all jobs depend on it, so a
// drained leader has stopped queues, and its drain waits for all jobs.
package flux

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// Roles of members.
const (
	Leader  = "leader"
	Compute = "compute"
)

const commandTimeout = 20 * time.Second

// Engine implements [engine.Engine] for an instance of Flux.
type Engine struct{ engine.Cluster }

// New returns the engine of an instance. It runs no command.
func New(c engine.Cluster) *Engine { return &Engine{c} }

// settings are the values that modules/flux sets in deployment.engine.settings.
type settings struct {
	DrainTimeout int    `json:"drainTimeout"` // in seconds
	Version      string `json:"version"`
}

// settingsOf returns the settings of a node of the hive.
func (e *Engine) settingsOf(node string) (settings, error) {
	s := settings{DrainTimeout: 300}
	err := batch.ReadSettings(e.Cluster.Members, node, &s)
	return s, err
}

// nodesOf returns the nodes of the hive that have a role.
func (e *Engine) nodesOf(role string) []string { return batch.NodesOf(e.Cluster.Members, role) }

// leader returns the node of rank 0, or an empty string if the hive has none.
func (e *Engine) leader() string { return batch.FirstOf(e.Cluster.Members, Leader) }

// errNoLeader is returned if the hive has no leader, or if it has not been set up yet, so that the instance does not
// exist.
var errNoLeader = errors.New("no leader is set up yet")

// runOnLeader runs a command on the leader.
func (e *Engine) runOnLeader(ctx context.Context, argv ...string) (string, error) {
	leader := e.leader()
	if leader == "" {
		return "", errNoLeader
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, leader, nil, argv...)
	if err != nil && isNotSetUp(err) {
		return "", errNoLeader
	}
	return string(out), err
}

// isNotSetUp reports whether a command failed because the node is no leader yet: Flux is not installed. A broker that
// does not answer is another error.
func isNotSetUp(err error) bool { return notSetUpError.MatchString(err.Error()) }

// notSetUpError matches the messages of shells and sudo.
var notSetUpError = regexp.MustCompile(`flux: (command )?not found`)

// Members implements [engine.Engine].
func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	s, err := e.readStatus(ctx)
	if errors.Is(err, errNoLeader) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("flux: %w", err)
	}
	out := map[string]engine.Status{}
	for name, n := range s.nodes {
		if n.online || n.drained {
			status := engine.Status{Ready: n.isReady(), Drained: n.isDrainedByUs(), Cordoned: n.drained}
			if n.drained && !status.Drained {
				status.Reason = n.describe()
			}
			out[name] = status
		}
	}
	out[e.leader()] = engine.Status{Ready: true, Drained: s.isStoppedByUs(), OneByOne: true, Cordoned: s.isStoppedByUs()}
	return out, nil
}
