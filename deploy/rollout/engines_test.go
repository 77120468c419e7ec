package rollout

import (
	"slices"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// A hive with several engines asks them in the same order in every run.
func TestEnginesInOrder(t *testing.T) {
	kinds := []string{"a", "b", "c", "d", "e"}
	hive := &nixeval.Hive{}
	makers := Engines{}
	var asked []string
	for _, kind := range kinds {
		hive.Units = append(hive.Units, nixeval.Unit{Name: kind, Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: kind}}})
		hive.Nodes = append(hive.Nodes, nixeval.Node{Name: kind, Unit: kind})
		makers[kind] = func(engine.Cluster) engine.Engine {
			asked = append(asked, kind)
			return &enginetest.Fake{}
		}
	}
	for range 20 { // a random map order is very unlikely to be right 20 times
		asked = nil
		engines, err := makers.Of(hive, fleet.New(hive, fleet.Options{}))
		if err != nil || len(engines) != len(kinds) {
			t.Fatalf("%d engines, %v", len(engines), err)
		}
		if !slices.Equal(asked, kinds) {
			t.Fatalf("got the engines in the order %q, want %q", asked, kinds)
		}
	}
}

// The fake engine passes the contract suite of engines.
func TestFakeEngineContract(t *testing.T) {
	enginetest.Run(t, func(*testing.T) *enginetest.Cluster {
		e := &enginetest.Fake{Registered: map[string]engine.Status{}}
		nodes := [3]string{"cp-1", "w-1", "w-2"}
		for _, node := range nodes {
			e.Registered[node] = engine.Status{Ready: true}
		}
		return &enginetest.Cluster{
			Engine: e, Nodes: nodes,
			BlockDrain: func(node string) { e.Undrainable = node },
			Reopen:     func() engine.Engine { return &enginetest.Fake{Registered: e.Registered} },
			Break:      func(node string) { e.Registered[node] = engine.Status{Drained: e.Registered[node].Drained} },
		}
	})
}
