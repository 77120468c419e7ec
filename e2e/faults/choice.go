package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

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

func (c choice) String() string {
	then := ""
	if c.again {
		then = "; then destroy again"
	}
	return fmt.Sprintf("seed %d: %s, %s %v after the beginning of %s, node %s%s", c.seed, c.operation.name, c.fault.name, c.delay, c.phase, c.victim, then)
}

// victims returns the nodes that a fault during the operation may affect.
func (o operation) victims() []string {
	if o.name == "scale up" { // the other node is not part of the operation
		return o.changes
	}
	all := slices.Clone(o.wanted.nodes())
	for _, node := range o.changes {
		if !slices.Contains(all, node) {
			all = append(all, node)
		}
	}
	return all
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
	return o.begins(c.phase) && (o.Node == "" || o.Node == c.victim || !slices.Contains(c.operation.changes, c.victim))
}
