package main

import (
	"slices"
	"testing"
)

// The same seed always has the same choice, its parts fit together, and enough consecutive seeds combine
// each fault with each operation.
func TestChoices(t *testing.T) {
	pairs := len(faults) * len(operations)
	seen := map[string]bool{}
	differ := map[string]bool{}
	for seed := uint64(1); seed <= uint64(pairs); seed++ {
		c := choose(seed)
		if first, again := (result{choice: c}).line(), (result{choice: choose(seed)}).line(); first != again {
			t.Errorf("%s, and then %s", first, again)
		}
		seen[c.operation.name+"/"+c.fault.name] = true
		differ[c.phase] = true
		p, known := usual[c.phase]
		if !known || !slices.Contains(c.operation.phases, c.phase) {
			t.Errorf("seed %d: the operation has no such phase", seed)
		}
		if c.delay < 0 || c.delay >= p {
			t.Errorf("seed %d: the phase is over by then", seed)
		}
		if c.fault.needsMachine && !c.operation.hasMachine(c.victim, c.phase) {
			t.Errorf("seed %d: there is no machine yet", seed)
		}
	}
	if len(seen) != pairs {
		t.Errorf("%d seeds in a row choose %d of the %d pairs of operation and fault", pairs, len(seen), pairs)
	}
	for name := range usual {
		if !differ[name] {
			t.Errorf("no seed up to %d chooses the phase %s", pairs, name)
		}
	}
}

// The seeds of TestSeeds cover each operation, and no fault twice.
func TestQuickSeeds(t *testing.T) {
	seenOperations, seenFaults := map[string]bool{}, map[string]bool{}
	for _, seed := range quickSeeds {
		c := choose(seed)
		seenOperations[c.operation.name], seenFaults[c.fault.name] = true, true
	}
	if len(seenOperations) != len(operations) || len(seenFaults) != len(quickSeeds) {
		t.Errorf("operations %v, faults %v", seenOperations, seenFaults)
	}
}

func TestPhases(t *testing.T) {
	c := choice{operation: operations[0], phase: "copy", victim: "w-2"}
	if c.operation.name != "first apply" {
		t.Fatal(c.operation.name)
	}
	for _, one := range []struct {
		o    streamEvent
		want bool
	}{
		{streamEvent{Event: "node-start", Phase: "copy", Node: "w-2"}, true},
		{streamEvent{Event: "node-start", Phase: "copy", Node: "w-1"}, false},
		{streamEvent{Event: "node-end", Phase: "copy", Node: "w-2"}, false},
		{streamEvent{Event: "phase-start", Phase: "deploy"}, false},
	} {
		if got := c.begins(one.o); got != one.want {
			t.Errorf("%+v: %t", one.o, got)
		}
	}
	// For a victim that the operation does not change, the phase of any node counts.
	c.operation, c.victim, c.phase = operations[3], "w-1", "remove"
	if !c.begins(streamEvent{Event: "node-start", Phase: "remove", Node: "w-2"}) {
		t.Error("the phase of the node that is removed does not count")
	}
}
