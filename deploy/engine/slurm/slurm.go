// Package slurm is the engine for clusters that modules/slurm sets up. It runs SLURM's commands on the
// controller over the SSH connection of the deployment, so nothing on the operator's machine needs MUNGE's key.
//
// The members are the controller, the compute nodes that the controller lists and that were not removed, and the node with slurmdbd as
// soon as the controller uses slurmdbd. A drained member has the state DRAIN in SLURM: its jobs continue, and it gets no new jobs.
package slurm

import (
	"context"
	"fmt"
	"regexp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

const (
	Controller = "controller"
	Compute    = batch.Compute
	Accounting = "accounting"
)

var Kind = engine.Kind{
	Name:      "slurm",
	Title:     "SLURM",
	New:       func(c engine.Cluster) engine.Engine { return New(c) },
	Head:      Controller,
	UsageForm: "nixbench exec --on %[1]s -- sinfo shows the nodes of the cluster",
	Help: engine.Help{
		Check: `SLURM: slurmctld answers, and exactly the hive's compute nodes are registered
and take or run jobs. slurmdbd answers if the hive has accounting. --deep runs
srun on all compute nodes, and a batch job that calls srun.`,
		Drain: `SLURM: a drained node gets no new jobs. apply waits until its jobs have ended,
for at most nixbench.slurm.drainTimeout seconds, and cancels none.`,
		Remove: `SLURM: a removed compute node is deleted from the nodes of slurmctld.`,
	},
}

// Engine implements [engine.Engine] for a SLURM cluster.
type Engine struct {
	*client
	batch.Pool[node]
}

// client asks and changes slurmctld with commands on the controller.
type client struct{ batch.Head }

func New(c engine.Cluster) *Engine {
	controller := &client{batch.Head{Cluster: c, Kind: "slurm", Role: Controller, NotSetUp: notSetUpError, Owner: asNobody,
		List: "squeue", Cancel: "scancel", Undrained: "with --no-drain the node changes while they run"}}
	return &Engine{controller, batch.Pool[node]{Head: &controller.Head, System: controller, Unit: "slurmd.service"}}
}

// asNobody is the first part of a command line: the rest runs as the user nobody, because slurmctld refuses jobs of root
// (DisableRootJobs).
var asNobody = []string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}

// notSetUpError matches the messages of env, shells, sudo and SLURM if the node is no controller yet: scontrol is not installed, or there
// is no slurm.conf. It does not match if another file is missing, such as the socket of munged: then the controller does not work.
var notSetUpError = regexp.MustCompile(`env: .?scontrol.?: No such file or directory` +
	`|scontrol: (command )?not found|Could not establish a configuration source`)

// settings are the values that modules/slurm sets in deployment.engine.settings, except drainTimeout and version.
type settings struct {
	Features   []string `json:"features"`
	Accounting bool     `json:"accounting"` // whether slurmdbd runs on the controller
	Hollow     int      `json:"hollow"`     // the number of hollow nodes whose slurmd run on this machine; 0: the machine is one node
}

func (c *client) settingsOf(node string) (s settings, err error) {
	err = c.Member(node).ReadSettings(&s)
	return s, err
}

// setState sets the state of nodes. nodes is a list of names in the form that scontrol accepts, such as c-1,c-2.
func (c *client) setState(ctx context.Context, nodes, state string, more ...string) error {
	_, err := c.RunOnHead(ctx, append([]string{"scontrol", "update", "nodename=" + nodes, "state=" + state}, more...)...)
	return err
}

type config map[string]string

func (c config) usesAccounting() bool {
	return c["AccountingStorageType"] == "accounting_storage/slurmdbd"
}

func (c *client) readConfig(ctx context.Context) (config, error) {
	out, err := c.RunOnHead(ctx, "scontrol", "show", "config")
	return engine.ParseProperties(out), err
}

func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	members, err := e.Pool.Members(ctx)
	if members == nil {
		return nil, err
	}
	members[e.Node()] = engine.Status{Ready: true, OneByOne: true}
	if name := e.accountingNode(); name != "" && name != e.Node() {
		config, err := e.readConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("slurm: %w", err)
		}
		if config.usesAccounting() {
			members[name] = engine.Status{Ready: true, OneByOne: true}
		}
	}
	return members, nil
}
