package main

import (
	"context"

	"github.com/nixbench/nixbench/deploy/bench"
	"github.com/nixbench/nixbench/deploy/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// newPlayer returns the player for a cluster of an engine.
func newPlayer(kind string, c engine.Cluster, w nixeval.BenchmarkWorkload) player.Player { return nil }

func newObserver(*bench.Store) bench.Observer {
	return func(context.Context) func() bench.Observation {
		return func() bench.Observation { return bench.Observation{State: bench.Valid} }
	}
}
