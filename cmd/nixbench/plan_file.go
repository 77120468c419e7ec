package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/deploy/state/runs"
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
		if runs.SafeArgs([]string{set})[0] != set {
			path, _, _ := strings.Cut(set, "=")
			return newUsageError("--out: --set %s seems to contain a secret, and a plan file must not; use deployment.keys", path)
		}
	}
	if safe := runs.SafeURLs(a.flake); safe != a.flake {
		return failure.WithHint(newUsageError("--out: --flake %s contains a secret, and a plan file must not", safe),
			"Nix's option access-tokens, and ~/.netrc, contain the credentials of flakes")
	}
	return checkOutput("--out", flags.out, deploy.IsPlan)
}

// checkOutput returns an error if a command cannot write the file of a flag, or if the file exists and must not be replaced. An empty
// file, such as that of mktemp, is replaced.
func checkOutput(flag, file string, isReplaceable func(file string) bool) error {
	info, err := os.Stat(file)
	switch dir := filepath.Dir(file); {
	case err == nil && !info.Mode().IsRegular():
		return newUsageError("%s %s: it exists and is not a file", flag, file)
	case err == nil && info.Size() > 0 && !isReplaceable(file):
		return failure.WithHint(newUsageError("%s %s: the file exists, and nixbench does not replace it", flag, file), "choose another name, or remove the file")
	case !isFolder(dir):
		return newUsageError("%s %s: there is no folder %s", flag, file, dir)
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
		NoDrain: flags.drain.noDrain, DrainAllowed: append([]string{}, flags.drain.allowed()...), MaxUnavailable: flags.maxUnavailable,
	}
	key, err := keys.MakePlanKey(a.dir)
	if err != nil {
		return err
	}
	if err := saved.Write(flags.out, key); err != nil {
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

// sourceHashRE is the hash in the store path of a flake's source. Each commit of the flake changes it.
var sourceHashRE = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-source([^0-9A-Za-z+._?=-])`)

// hashDeployment returns a hash of the options of a node's deployment and machine, without the contents of keys. A path in the
// source of a flake is hashed without the store path of the source, so that a change of another file there does not matter. Only
// the path of an image is hashed as it is, because nothing else shows that the image of a new machine has changed.
func hashDeployment(hive *nixeval.Hive, n nixeval.Node) string {
	u := hive.Unit(n.Unit)
	if u == nil {
		return ""
	}
	role := hive.Roles[n.Role]
	image := role.Image
	role.Count, role.Image = 0, nil // another number of nodes does not change this one
	deployment := u.Deployment
	deployment.Modules = nil           // the system shows their changes
	data, err := json.Marshal(struct { // a Secret is encoded as (secret)
		Node       nixeval.Node
		Deployment nixeval.Deployment
		Role       nixeval.Role
		Cluster    *nixeval.Cluster
	}{n, deployment, role, hive.Cluster})
	if err != nil {
		return err.Error()
	}
	sum := sha256.New()
	sum.Write(sourceHashRE.ReplaceAll(data, []byte("source$1")))
	if image != nil {
		sum.Write([]byte("\x00" + *image))
	}
	return hex.EncodeToString(sum.Sum(nil))
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
