package flux

import (
	"github.com/nixbench/nixbench/deploy/engine"
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
