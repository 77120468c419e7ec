package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/bench/player"
	fluxplayer "github.com/nixbench/nixbench/bench/player/flux"
	kubernetesplayer "github.com/nixbench/nixbench/bench/player/kubernetes"
	slurmplayer "github.com/nixbench/nixbench/bench/player/slurm"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/kubernetescmd"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/flux"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/engine/slurm"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// engineTable lists the engines that nixbench supports, with the commands that only one engine has, its player for benchmarks, and the NixOS module of
// a client from which this player submits jobs. An engine consists of the packages in its line and its NixOS modules; no other code names it.
var engineTable = []engineEntry{
	{kubernetes.Kind, kubernetescmd.Commands, newKubernetesPlayer, "modules/kubernetes/client.nix"},
	{slurm.Kind, nil, newSlurmPlayer, "modules/slurm/login.nix"},
	{flux.Kind, nil, newFluxPlayer, ""},
}

type engineEntry struct {
	kind     engine.Kind
	commands enginecmd.Commands                                                                     // nil: none
	player   func(c engine.Cluster, client string, settings json.RawMessage) (player.Player, error) // nil: none
	client   string                                                                                 // empty: the player submits jobs only on the scheduler's node
}

// engineOf returns the entry of an engine, or an empty one if there is none.
func engineOf(kind string) engineEntry {
	for _, e := range engineTable {
		if e.kind.Name == kind {
			return e
		}
	}
	return engineEntry{}
}

func newSlurmPlayer(c engine.Cluster, client string, _ json.RawMessage) (player.Player, error) {
	return slurmplayer.New(c, client), nil
}

func newFluxPlayer(c engine.Cluster, _ string, _ json.RawMessage) (player.Player, error) {
	return fluxplayer.New(c), nil
}

// newKubernetesPlayer returns a player with the settings of a workload.
func newKubernetesPlayer(c engine.Cluster, client string, settings json.RawMessage) (player.Player, error) {
	var o kubernetesplayer.Options
	if err := json.Unmarshal(settings, &o); err != nil {
		return nil, err
	}
	return kubernetesplayer.New(c, client, o), nil
}

// engineKinds returns all engines of the table.
func engineKinds() []engine.Kind {
	var out []engine.Kind
	for _, e := range engineTable {
		out = append(out, e.kind)
	}
	return out
}

// engines returns the constructor of each engine. The engines issue certificates with the vault of the state folder.
func (a *app) engines() rollout.Engines {
	issue := vault.Open(a.dir.Vault()).Issue
	out := rollout.Engines{}
	for _, k := range engineKinds() {
		out[k.Name] = func(c engine.Cluster) engine.Engine {
			c.Issue = issue
			return k.New(c)
		}
	}
	return out
}

// engineCommands returns the commands of all engines.
func (a *app) engineCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, e := range engineTable {
		if e.commands != nil {
			out = append(out, e.commands(engineProgram{a})...)
		}
	}
	return out
}

// withEngineHelp returns a help text followed by the paragraphs of the engines.
func withEngineHelp(text string, paragraph func(engine.Help) string) string {
	for _, k := range engineKinds() {
		if p := paragraph(k.Help); p != "" {
			text += "\n\n" + p
		}
	}
	return text
}

// accessFiles returns the names of the files in the state folder to which commands of engines write credentials.
func accessFiles() []string {
	var out []string
	for _, k := range engineKinds() {
		if k.AccessFile != "" {
			out = append(out, k.AccessFile)
		}
	}
	return out
}

// engineNotes returns the notes of the hive's engines for status.
func (a *app) engineNotes(hive *nixeval.Hive, now time.Time) []string {
	var out []string
	for _, k := range engine.KindsOf(hive, engineKinds()) {
		if k.Notes != nil {
			out = append(out, k.Notes(a.dir.AccessFile(k.AccessFile), now)...)
		}
	}
	return out
}

// defaultAPIPort returns the port of the cluster's API if the hive sets none; 0 if its engines have no such port.
func defaultAPIPort(hive *nixeval.Hive) int {
	for _, k := range engine.KindsOf(hive, engineKinds()) {
		if k.APIPort != 0 {
			return k.APIPort
		}
	}
	return 0
}

// describeNewClusters returns, for each cluster of the hive that no node ran in the state before, how to use it.
func describeNewClusters(hive *nixeval.Hive, before *state.State) []string {
	members := engine.MembersByKind(hive)
	var out []string
	for _, k := range engine.KindsOf(hive, engineKinds()) {
		existed := false
		for _, m := range members[k.Name] {
			existed = existed || ranEngine(before.Nodes[m.Node], k.Name)
		}
		if usage := describeUsage(k, members); usage != "" && !existed {
			out = append(out, usage)
		}
	}
	return out
}

// ranEngine reports whether the last system of a node had the engine. A state of an earlier nixbench does not contain
// it: then ranEngine returns true for any system.
func ranEngine(n state.Node, kind string) bool {
	return n.LastConfirmed != nil && (n.Engine == kind || n.Engine == "" && len(n.Memberships) == 0)
}

// describeUsage returns how to use the cluster of a kind, or an empty string. members are the members by kind.
func describeUsage(kind engine.Kind, members map[string][]engine.Member) string {
	if kind.Usage == nil {
		return ""
	}
	return kind.Usage(members[kind.Name])
}
