package deploy

import (
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/flux"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/engine/slurm"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// EngineKinds returns the cluster engines that nixbench supports, such as Kubernetes. An engine consists of its Go package and its
// NixOS modules. Package deploy names engines only here.
func EngineKinds() []engine.Kind { return []engine.Kind{kubernetes.Kind, slurm.Kind, flux.Kind} }

// newEngines returns the constructor of each engine. The engines issue certificates with the vault of the state folder.
func newEngines(dir state.Dir) rollout.Engines {
	issue := vault.Open(dir.Vault()).Issue
	out := rollout.Engines{}
	for _, k := range EngineKinds() {
		out[k.Name] = func(c engine.Cluster) engine.Engine {
			c.Issue = issue
			return k.New(c)
		}
	}
	return out
}

// accessFiles returns the names of the files in the state folder into which commands of engines write credentials.
func accessFiles() []string {
	var out []string
	for _, k := range EngineKinds() {
		if k.AccessFile != "" {
			out = append(out, k.AccessFile)
		}
	}
	return out
}

// defaultAPIPort returns the port of the cluster's API if the hive sets none; 0 if its engines have no such port.
func defaultAPIPort(hive *nixeval.Hive) int {
	for _, k := range engine.KindsOf(hive, EngineKinds()) {
		if k.APIPort != 0 {
			return k.APIPort
		}
	}
	return 0
}

// describeNewClusters returns usage texts for the clusters of the hive whose engine ran on no node according to the state before.
func describeNewClusters(hive *nixeval.Hive, before *state.State) []string {
	members := engine.MembersByKind(hive)
	var out []string
	for _, k := range engine.KindsOf(hive, EngineKinds()) {
		existed := slices.ContainsFunc(members[k.Name], func(m engine.Member) bool {
			n := before.Nodes[m.Node]
			return n.LastConfirmed != nil && n.Engine == k.Name
		})
		if usage := k.Usage(members[k.Name]); usage != "" && !existed {
			out = append(out, usage)
		}
	}
	return out
}

// ClusterOf returns the hive's cluster with an engine of this kind. It is for a command that only this engine has. If no node of the
// hive is a member of such a cluster, ClusterOf returns a usage error with the name of the command.
func ClusterOf(s *Session, kind engine.Kind, command string) (engine.Cluster, error) {
	all := engine.MembersByKind(s.Hive)
	if members := all[kind.Name]; len(members) > 0 {
		return engine.Cluster{Name: s.Hive.ClusterName(), Members: members, Run: s.Fleet.Run}, nil
	}
	err, hint := failure.NewUsage("%s: no node of the hive is a member of a %s cluster", command, kind.Title), "members import modules/"+kind.Name
	for _, other := range engine.KindsOf(s.Hive, EngineKinds()) {
		err, hint = fmt.Errorf("%w: its cluster is %s", err, other.Title), other.Usage(all[other.Name])
	}
	return engine.Cluster{}, failure.WithHint(err, hint)
}
