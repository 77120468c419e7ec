package main

import (
	"encoding/json"

	"github.com/nixbench/nixbench/bench/player"
	fluxplayer "github.com/nixbench/nixbench/bench/player/flux"
	kubernetesplayer "github.com/nixbench/nixbench/bench/player/kubernetes"
	slurmplayer "github.com/nixbench/nixbench/bench/player/slurm"
	"github.com/nixbench/nixbench/bench/sweeps"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/flux"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/engine/slurm"
)

// schedulers maps an engine to its player, which submits the jobs of a benchmark, and to the NixOS module of the machine on which it does.
var schedulers = map[string]sweeps.Scheduler{
	kubernetes.Kind.Name: {NewPlayer: newKubernetesPlayer, Arrays: true, Client: "modules/kubernetes/client.nix"},
	slurm.Kind.Name:      {NewPlayer: newSlurmPlayer, Arrays: true, Client: "modules/slurm/login.nix"},
	flux.Kind.Name:       {NewPlayer: newFluxPlayer},
}

func newSlurmPlayer(c engine.Cluster, client string, arrays bool, _ json.RawMessage) (player.Player, error) {
	return slurmplayer.New(c, client, arrays), nil
}

func newFluxPlayer(c engine.Cluster, _ string, _ bool, _ json.RawMessage) (player.Player, error) {
	return fluxplayer.New(c), nil
}

func newKubernetesPlayer(c engine.Cluster, client string, arrays bool, settings json.RawMessage) (player.Player, error) {
	o := kubernetesplayer.Options{Arrays: arrays}
	if err := json.Unmarshal(settings, &o); err != nil {
		return nil, err
	}
	return kubernetesplayer.New(c, client, o), nil
}

func withEngineHelp(text string, paragraph func(engine.Help) string) string {
	for _, k := range deploy.EngineKinds() {
		if p := paragraph(k.Help); p != "" {
			text += "\n\n" + p
		}
	}
	return text
}
