package slurm

import (
	"github.com/nixbench/nixbench/deploy/engine"
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
