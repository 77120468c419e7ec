package main

// cluster is the desired state of the cluster in the hive: the number of nodes, and the content of /etc/version.
type cluster struct {
	count   int
	version string
}

func (c cluster) nodes() []string { return []string{"w-1", "w-2"}[:c.count] }

// operation is a run of nixbench into which a fault is injected.
type operation struct {
	name   string
	before []cluster // the states that are applied one after the other before the operation, without a fault
	wanted cluster   // the desired state during the operation and afterwards
	args   []string
	phases []string // phases of the operation in which a fault can be injected
	// changes are the nodes that the operation changes, so that they have phases. The victim of a fault
	// may be another node.
	changes []string
}

var (
	applied = []string{"apply", "--yes", "--timeout", "confirm=15s,boot=60s"}
	one     = cluster{2, "one"}
	two     = cluster{2, "two"}
	half    = cluster{1, "one"}
)

var operations = []operation{
	{
		name: "first apply", wanted: one, args: applied, changes: one.nodes(),
		phases: []string{"survey", "provision", "image", "evaluate", "build", "boot", "boot", "connect", "copy", "keys", "activate", "confirm"},
	},
	{
		name: "change", before: []cluster{one}, wanted: two, args: applied, changes: two.nodes(),
		phases: []string{"survey", "provision", "evaluate", "build", "connect", "copy", "keys", "activate", "activate", "confirm"},
	},
	{
		name: "scale up", before: []cluster{half}, wanted: one, args: applied, changes: []string{"w-2"},
		phases: []string{"provision", "image", "evaluate", "build", "boot", "boot", "connect", "copy", "keys", "activate", "confirm"},
	},
	{
		name: "scale down", before: []cluster{one}, wanted: half, args: applied, changes: []string{"w-2"},
		phases: []string{"provision", "evaluate", "build", "remove", "remove"},
	},
	{
		name: "rollback", before: []cluster{one, two}, wanted: two, changes: two.nodes(),
		args:   []string{"rollback", "--yes", "--timeout", "confirm=15s"},
		phases: []string{"connect", "activate", "confirm"},
	},
	{
		name: "reboot", before: []cluster{one}, wanted: one, changes: one.nodes(),
		args:   []string{"reboot", "--yes", "--timeout", "60s"},
		phases: []string{"connect", "reboot", "reboot"},
	},
	{
		name: "destroy", before: []cluster{one}, wanted: one, changes: one.nodes(),
		args:   []string{"destroy", "--yes"},
		phases: []string{"survey", "remove", "remove"},
	},
}
