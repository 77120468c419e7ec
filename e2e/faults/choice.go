package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// choice is all that a seed decides.
type choice struct {
	seed      uint64
	operation operation
	fault     fault
	phase     string
	delay     time.Duration // from the beginning of the phase to the fault
	victim    string        // the node that a fault of a node hits
	again     bool          // a destroy that met a fault is repeated, before the next apply
}

// choose decides. Fault and operation go by the seed's remainders, so that as many seeds in a row as
// there are pairs of them cover each pair once; the rest is drawn.
func choose(seed uint64) choice {
	dice := rand.New(rand.NewPCG(seed, 0))
	c := choice{seed: seed, fault: faults[seed%uint64(len(faults))], operation: operations[seed%uint64(len(operations))]}
	c.victim = pick(dice, c.operation.victims())
	possible := slices.DeleteFunc(slices.Clone(c.operation.phases), func(phase string) bool {
		return c.fault.needsMachine && !c.operation.hasMachine(c.victim, phase)
	})
	c.phase = pick(dice, possible)
	// Not up to the very end: what takes less time than usual would be over.
	c.delay = time.Duration(dice.Int64N(int64(phases[c.phase].usual) * 8 / 10)).Round(time.Millisecond)
	c.again = c.operation.name == "destroy" && dice.IntN(2) == 0
	return c
}

func pick(dice *rand.Rand, from []string) string { return from[dice.IntN(len(from))] }

func (c choice) String() string {
	then := ""
	if c.again {
		then = "; then destroy again"
	}
	return fmt.Sprintf("seed %d: %s, %s %v after the beginning of %s, node %s%s", c.seed, c.operation.name, c.fault.name, c.delay, c.phase, c.victim, then)
}

// victims are the nodes that a fault may hit.
func (o operation) victims() []string {
	if o.name == "scale up" { // before it is there, there is nothing to hit of the other
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

// hasMachine tells whether the node's machine runs when the phase begins.
func (o operation) hasMachine(node, phase string) bool {
	if len(o.before) > 0 && slices.Contains(o.before[0].nodes(), node) {
		return true
	}
	return slices.Contains([]string{"connect", "copy", "keys", "activate", "confirm"}, phase)
}

// begins tells whether the event is the beginning of the chosen phase, on the victim if it is a node's.
func (c choice) begins(o occurrence) bool {
	return phases[c.phase].begins(o) && (o.Node == "" || o.Node == c.victim || !slices.Contains(c.operation.changes, c.victim))
}
