// Package slurm is the engine for clusters that modules/slurm sets up. It runs SLURM's commands on the
// controller over the SSH connection of the deployment, so nothing on the operator's machine needs MUNGE's key.
//
// The members are the controller, the compute nodes that it lists and that were not removed, and the node with slurmdbd once the controller
// uses it. A drained member has the state DRAIN in SLURM: its jobs continue, and it gets no new ones.
package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// Roles of members.
const (
	Controller = "controller"
	Compute    = "compute"
	Accounting = "accounting"
)

const commandTimeout = 15 * time.Second

// Engine implements [engine.Engine] for a SLURM cluster.
type Engine struct{ engine.Cluster }

// New returns the engine of a cluster. It runs no command.
func New(c engine.Cluster) *Engine { return &Engine{c} }

// settings are the values that modules/slurm sets in deployment.engine.settings.
type settings struct {
	DrainTimeout int      `json:"drainTimeout"` // in seconds
	Features     []string `json:"features"`
	Accounting   bool     `json:"accounting"` // whether slurmdbd runs on the controller
	Version      string   `json:"version"`
	Hollow       int      `json:"hollow"` // the number of nodes for which the machine stands, or 0
}

// settingsOf returns the settings of a node of the hive.
func (e *Engine) settingsOf(node string) (settings, error) {
	s := settings{DrainTimeout: 300}
	err := batch.ReadSettings(e.Cluster.Members, node, &s)
	return s, err
}

// nodesOf returns the nodes of the hive that have a role.
func (e *Engine) nodesOf(role string) []string { return batch.NodesOf(e.Cluster.Members, role) }

// controller returns the node with slurmctld, or an empty string if the hive has none.
func (e *Engine) controller() string { return batch.FirstOf(e.Cluster.Members, Controller) }

// errNoController is returned if the hive has no controller, or if it has not been set up yet, so that the
// cluster does not exist.
var errNoController = errors.New("no controller is set up yet")

// readConfig returns the settings with which slurmctld runs, by their names.
func (e *Engine) readConfig(ctx context.Context) (map[string]string, error) {
	out, err := e.runOnController(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(line, "="); ok {
			config[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return config, nil
}

// runOnController runs one of SLURM's commands on the controller.
func (e *Engine) runOnController(ctx context.Context, argv ...string) (string, error) {
	controller := e.controller()
	if controller == "" {
		return "", errNoController
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, controller, nil, argv...)
	if err != nil && isNotSetUp(err) {
		return "", errNoController
	}
	return string(out), err
}

// isNotSetUp reports whether a command failed because the node is no controller yet: scontrol is not installed,
// or there is no slurm.conf. Other files that do not exist, such as the socket of munged, mean that the controller
// does not work.
func isNotSetUp(err error) bool { return notSetUpError.MatchString(err.Error()) }

// notSetUpError matches the messages of env, of shells and sudo, and of SLURM.
var notSetUpError = regexp.MustCompile(`env: .?scontrol.?: No such file or directory` +
	`|scontrol: (command )?not found|Could not establish a configuration source`)

// Members implements [engine.Engine].
func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	nodes, err := e.listNodes(ctx)
	if errors.Is(err, errNoController) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("slurm: %w", err)
	}
	out := map[string]engine.Status{e.controller(): {Ready: true, OneByOne: true}}
	if name := e.accountingNode(); name != "" && name != e.controller() {
		config, err := e.readConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("slurm: %w", err)
		}
		if config["AccountingStorageType"] == accountingPlugin {
			out[name] = engine.Status{Ready: true, OneByOne: true}
		}
	}
	for name, n := range nodes {
		if n.isRemoved() {
			continue
		}
		status := engine.Status{Ready: n.isReady(), Drained: n.isDrainedByUs(), Cordoned: n.isDrained() || n.isOutOfService(), Version: n["Version"]}
		if n.isOutOfService() {
			status.Reason = cmp.Or(n["Drained"], n.describe())
		}
		out[name] = status
	}
	return out, nil
}
