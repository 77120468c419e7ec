package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// checkPlanFile returns an error if plan --out cannot write its file, before anything is evaluated.
func (a *app) checkPlanFile(flags planFlags) error {
	if flags.out == "" {
		return nil
	}
	if flags.keepGoing {
		return newUsageError("--out and --keep-going exclude each other: a plan file contains all selected nodes")
	}
	for _, set := range a.sets {
		if state.SafeArgs([]string{set})[0] != set {
			path, _, _ := strings.Cut(set, "=")
			return newUsageError("--out: --set %s seems to contain a secret, and a plan file must not; use deployment.keys", path)
		}
	}
	info, err := os.Stat(flags.out)
	if err == nil && !info.Mode().IsRegular() {
		return newUsageError("--out %s: it exists and is not a file", flags.out)
	}
	if dir := filepath.Dir(flags.out); !isFolder(dir) {
		return newUsageError("--out %s: there is no folder %s", flags.out, dir)
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (a *app) writePlanFile(e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, flags planFlags, made deploy.Plan) error {
	saved := a.newSavedPlan(e, hive, nodes, made)
	saved.Arguments = deploy.PlanArguments{
		On: append([]string{}, flags.on...), Sets: append([]string{}, a.sets...), NoKeys: flags.noKeys, Recreate: flags.recreate,
		NoDrain: flags.drain.noDrain, DrainBarePods: flags.drain.barePods, DrainLocalData: flags.drain.localData, MaxUnavailable: flags.maxUnavailable,
	}
	if err := saved.Write(flags.out); err != nil {
		return err
	}
	a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: "the plan is in " + flags.out + "; nixbench apply " + flags.out + " executes it"})
	return nil
}

// newSavedPlan returns a plan in the form in which it is saved, and compared with a saved plan.
func (a *app) newSavedPlan(e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, made deploy.Plan) deploy.SavedPlan {
	s := deploy.SavedPlan{
		Nixbench: readBuildVersion().Version, Made: time.Now().UTC(), Cluster: hive.ClusterName(), Hive: e.Source.String(), IsFlake: e.Source.IsFlake(),
		Source: hashSource(e.Source), Revision: readGitRevision(a.ctx, e.Source.Dir), Scheduler: hive.Scheduler(),
		Deployments: map[string]string{}, Nodes: made.Nodes,
	}
	for _, n := range nodes {
		s.Deployments[n.Name] = hashDeployment(hive, n)
	}
	return s
}

// hashDeployment returns a hash of the options of a node's deployment and machine, without the contents of keys.
func hashDeployment(hive *nixeval.Hive, n nixeval.Node) string {
	u := hive.Unit(n.Unit)
	if u == nil {
		return ""
	}
	role := hive.Roles[n.Role]
	role.Count = 0                     // another number of nodes does not change this one
	data, err := json.Marshal(struct { // a Secret is encoded as (secret)
		Node       nixeval.Node
		Deployment nixeval.Deployment
		Role       nixeval.Role
		Cluster    *nixeval.Cluster
	}{n, u.Deployment, role, hive.Cluster})
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// hashSource returns a hash of the hive's file, or of flake.nix and flake.lock. A file that the hive imports is not part of it: the
// derivations of the nodes show its changes.
func hashSource(s nixeval.Source) string {
	files := []string{s.File}
	if s.IsFlake() {
		files = []string{filepath.Join(s.Dir, "flake.nix"), filepath.Join(s.Dir, "flake.lock")}
	}
	sum := sha256.New()
	for _, file := range files {
		data, err := durable.Read(file, durable.ConfigSize)
		if err != nil {
			continue
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
