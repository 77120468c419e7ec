package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"
)

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

// streamEvent is one line of nixbench's event stream (docs/events.md).
type streamEvent struct {
	Event    string          `json:"event"`
	Phase    string          `json:"phase"`
	Node     string          `json:"node"`
	Text     string          `json:"text"`
	Done     int             `json:"done"`
	Problems json.RawMessage `json:"problems"`
	Result   json.RawMessage `json:"result"`
}

// usual contains the phases in which a fault can be injected, and about how long each takes. A fault is injected within this time after the
// phase begins. The durations were measured on four busy processor cores.
var usual = map[string]time.Duration{
	"survey":    80 * time.Millisecond,
	"provision": 300 * time.Millisecond,
	"image":     900 * time.Millisecond,
	"evaluate":  200 * time.Millisecond,
	"build":     600 * time.Millisecond,
	"boot":      3 * time.Second,
	"connect":   250 * time.Millisecond,
	"copy":      500 * time.Millisecond,
	"keys":      200 * time.Millisecond,
	"activate":  1500 * time.Millisecond,
	"confirm":   700 * time.Millisecond,
	"remove":    500 * time.Millisecond,
	"reboot":    4 * time.Second,
}

// choice contains what a seed selects: the operation, the fault, and the time and the place of the fault.
type choice struct {
	seed      uint64
	operation operation
	fault     fault
	phase     string
	delay     time.Duration // from the beginning of the phase to the fault
	victim    string        // the node that the fault affects, if the fault is one of a node
	again     bool          // after a destroy with a fault, another destroy runs before the next apply
}

// choose returns the choice of a seed. The fault and the operation are computed from the seed by remainders: if there are n
// pairs of a fault and an operation, n consecutive seeds select each pair once. The seed also initialises the
// generator of the random values, such as the delay.
func choose(seed uint64) choice {
	random := rand.New(rand.NewPCG(seed, 0))
	c := choice{seed: seed, fault: faults[seed%uint64(len(faults))], operation: operations[seed%uint64(len(operations))]}
	c.victim = pick(random, c.operation.victims())
	possible := slices.DeleteFunc(slices.Clone(c.operation.phases), func(phase string) bool {
		return c.fault.needsMachine && !c.operation.hasMachine(c.victim, phase)
	})
	c.phase = pick(random, possible)
	// At most 80 % of the usual duration, because the phase may be shorter than usual.
	c.delay = time.Duration(random.Int64N(int64(usual[c.phase]) * 8 / 10)).Round(time.Millisecond)
	c.again = c.operation.name == "destroy" && random.IntN(2) == 0
	return c
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }

// victims returns the nodes that a fault during the operation may affect.
func (o operation) victims() []string {
	if o.name == "scale up" { // the other node is not part of the operation
		return o.changes
	}
	return one.nodes()
}

// hasMachine reports whether the node's machine runs when the phase begins.
func (o operation) hasMachine(node, phase string) bool {
	if len(o.before) > 0 && slices.Contains(o.before[0].nodes(), node) {
		return true
	}
	return slices.Contains([]string{"connect", "copy", "keys", "activate", "confirm"}, phase)
}

// begins reports whether the event is the beginning of the chosen phase. If the phase is one of nodes, the event must be about the victim,
// if the operation changes the victim.
func (c choice) begins(o streamEvent) bool {
	phase := c.phase
	if phase == "reboot" { // nixbench reports a reboot as the phase activate, which lasts until the node is reachable again
		phase = "activate"
	}
	return o.Phase == phase && (o.Event == "phase-start" || o.Event == "node-start") && (o.Node == "" || o.Node == c.victim || !slices.Contains(c.operation.changes, c.victim))
}
