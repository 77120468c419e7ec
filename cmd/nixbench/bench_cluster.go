package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// benchCluster deploys the configurations of a sweep from the sweep's copy of the hive. The cluster has its own state folder, beside that
// copy, so it never changes the machines of a cluster that runs from the original.
type benchCluster struct {
	app       *app
	folder    string // of the sweep
	source    string // the hive in the copy: a file, or a flake reference
	flake     bool
	sets      []string            // --set of the command, which apply to all configurations
	first     bench.Configuration // a configuration with which the hive can be evaluated
	client    string              // the role of the client, or an empty string
	benchmark bench.Benchmark
	name      string    // of the cluster; empty until the hive has been surveyed
	state     state.Dir // of the cluster; empty until the hive has been surveyed
	// shared is the folder with the addresses and keys of the last sweep of the hive. Sweeps of one hive have the same ones, so that
	// their systems differ only in what was changed. It is empty for a repetition, which is independent of the hive.
	shared string
}

// newApp returns an app for one command on the copy with a configuration, that writes what it shows to log.
func (c *benchCluster) newApp(ctx context.Context, configuration bench.Configuration, log io.Writer) (*app, error) {
	parent := c.app
	sub := newApp(ctx, parent.connect)
	sub.sets = append(slices.Clone(c.sets), configuration.Sets()...)
	var err error
	if sub.extraModules, err = c.benchmark.ExtraModules(configuration); err != nil {
		return nil, err
	}
	sub.nixOptions, sub.showTrace, sub.impure, sub.sshPrograms = parent.nixOptions, parent.showTrace, parent.impure, parent.sshPrograms
	sub.evalWorkers, sub.evalNodeLimit, sub.color = parent.evalWorkers, parent.evalNodeLimit, "never"
	if c.flake {
		sub.flake = c.source
	} else {
		sub.file = c.source
	}
	sub.viewOnce.Do(func() { sub.view = ui.New(ui.Options{Out: log, Err: log, Verbose: true, Color: "never"}) })
	return sub, nil
}

// Freeze assigns the addresses of a configuration's nodes, and evaluates and builds their systems, without a machine. It sets the systems and
// their closure in the configuration. Garbage collector roots in the sweep's folder protect them.
func (c *benchCluster) Freeze(ctx context.Context, configuration *bench.Configuration, log io.Writer) error {
	sub, err := c.newApp(ctx, *configuration, log)
	if err != nil {
		return err
	}
	defer sub.view.Close()
	e, hive, nodes, err := sub.loadNodes(nil)
	if err != nil {
		return err
	}
	c.state, c.name = sub.dir, hive.ClusterName()
	if err := c.takeReservation(); err != nil {
		return err
	}
	if !hive.Meta.AllowApplyAll {
		return newUsageError("meta.allowApplyAll is false in the hive, and a benchmark deploys all its nodes")
	}
	if !slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool { return machine.Boots(hive, n) }) {
		return failure.WithHint(newUsageError("no node of the hive is a machine that nixbench creates, and a benchmark creates its machines"),
			"describe them in roles (docs/provisioning.md)")
	}
	if len(hive.Broken) == 0 {
		if err := checkEngine(hive); err != nil {
			return err
		}
		if err := checkClient(hive, c.client); err != nil {
			return err
		}
	}
	var built, repeated []deploy.Closure
	err = sub.runRecorded(e, hive, "bench", func(s *session) error {
		if err := reserve(ctx, sub.newMachines(e, hive, s.send), s); err != nil {
			return err
		}
		facts, err := c.keepFacts(configuration, sub.dir)
		if err != nil {
			return err
		}
		if repeated, err = deploy.Build(ctx, e.WithFacts(facts), hive.WithKeys(nodes), nodes, false); err != nil {
			return err
		}
		if built = repeated; facts == "" || facts == sub.dir.Facts() {
			return nil
		}
		built, err = deploy.Build(ctx, e.WithFacts(sub.dir.Facts()), hive.WithKeys(nodes), nodes, false)
		return err
	})
	if err != nil {
		return err
	}
	configuration.Hollow = countHollow(hive)
	configuration.Systems = map[string]bench.System{}
	for _, b := range built {
		configuration.Systems[b.Node] = bench.System{Drv: b.Drv, Path: b.Path}
	}
	links := map[string]string{}
	for _, b := range slices.Concat(built, repeated) {
		links[filepath.Join(c.folder, "gcroots", filepath.Base(b.Path))] = b.Path
	}
	if err := e.Keep(ctx, links); err != nil {
		return err
	}
	drvs := map[string]string{}
	for _, b := range slices.Concat(built, repeated) {
		drvs[filepath.Join(c.folder, "gcroots", filepath.Base(b.Drv))] = b.Drv
	}
	if err := e.KeepDerivations(ctx, drvs); err != nil {
		return err
	}
	if configuration.Outside, err = c.findOutside(ctx, e, hive); err != nil {
		return err
	}
	var systems []string
	for _, b := range repeated {
		systems = append(systems, b.Path)
	}
	configuration.Closure, err = e.Requisites(ctx, systems)
	return err
}

// findOutside returns the paths outside of the sweep's folder and of the store from which the hive's systems are made, as far as they are known: nixpkgs
// and nixbench's modules. Each has the path to which it points.
func (c *benchCluster) findOutside(ctx context.Context, e *nixeval.Evaluator, hive *nixeval.Hive) (map[string]string, error) {
	data, err := e.Introspect(ctx, nixeval.Expression{Text: "{ pkgs, ... }: toString pkgs.path"})
	if err != nil {
		return nil, fmt.Errorf("the path of nixpkgs: %w", err)
	}
	var nixpkgs string
	if err := json.Unmarshal(data, &nixpkgs); err != nil {
		return nil, fmt.Errorf("the path of nixpkgs: %w", err)
	}
	out := map[string]string{}
	for _, path := range append(deploy.ImportedModules(hive), nixpkgs) {
		if strings.HasPrefix(path, "/nix/store/") || strings.HasPrefix(path, c.folder+"/") {
			continue
		}
		if out[path], err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keepFacts returns the file with the facts from which the closure of a configuration is built: addresses, and hashes of keys. In a
// repetition they are the facts of the original sweep. Otherwise they are those of the sweep's cluster, which keepFacts copies into the sweep.
func (c *benchCluster) keepFacts(configuration *bench.Configuration, dir state.Dir) (string, error) {
	kept := filepath.Join(c.folder, "facts", configuration.FactsFile())
	if durable.Exists(kept) {
		return kept, nil
	}
	if !durable.Exists(dir.Facts()) {
		return "", nil
	}
	data, err := durable.Read(dir.Facts(), durable.RecordSize)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return "", err
	}
	return dir.Facts(), durable.Write(kept, data)
}

// checkEngine returns an error unless the nodes run one scheduler, to which jobs can be submitted.
func checkEngine(hive *nixeval.Hive) error {
	kinds := engine.KindsOf(hive, engineKinds())
	const hint = "import the modules of one scheduler, or choose one with the factor scheduler (docs/schedulers.md)"
	switch {
	case len(kinds) == 0:
		return failure.WithHint(newUsageError("no node of the hive runs a scheduler, and a benchmark needs one"), hint)
	case len(kinds) > 1:
		return failure.WithHint(newUsageError("the nodes of the hive run %s and %s, and a benchmark needs one scheduler", kinds[0].Title, kinds[1].Title), hint)
	case engineOf(kinds[0].Name).player == nil:
		return newUsageError("nixbench cannot submit the jobs of a benchmark to %s", kinds[0].Title)
	}
	return nil
}

// reserve records the addresses and the keys of the hive's machines, as apply does before it creates them.
func reserve(ctx context.Context, m *machine.Manager, s *session) error {
	plan, err := m.MakePlan(ctx, s.store.State(), nil, false)
	if err != nil {
		return err
	}
	defer plan.Close()
	if !plan.Network.Mode.Ours() {
		return failure.WithHint(newUsageError("the addresses in a network of mode %s are known only when machines run", plan.Network.Mode),
			"a benchmark needs a network that nixbench manages (cluster.network.mode = \"nat\" or \"isolated\"), so that all systems can be built before the first trial")
	}
	starter := &machine.Starter{Manager: m, Store: s.store, RunID: s.record.ID()}
	return starter.AskAndRecord(plan, s.record, false)
}

// keepReservation copies the cluster's state before its first machine, with addresses and keys. Remove restores it.
func (c *benchCluster) keepReservation() error {
	err := copyState(string(c.state), filepath.Join(c.folder, ".nixbench", "reservation"))
	if err == nil && c.shared != "" {
		err = copyState(string(c.state), c.shared)
	}
	return err
}

// takeReservation copies the addresses and keys of the last sweep of the hive, before the first configuration is built.
func (c *benchCluster) takeReservation() error {
	if c.shared == "" || durable.Exists(filepath.Join(string(c.state), "state.json")) || !durable.Exists(filepath.Join(c.shared, "state.json")) {
		return nil
	}
	return copyState(c.shared, string(c.state))
}

// copyState copies a state folder without records of runs, roots and locks.
func copyState(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case d.IsDir() && (name == "runs" || name == "gcroots"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case name == "lock" || !d.Type().IsRegular():
			return nil
		}
		data, err := durable.Read(path, durable.RecordSize)
		if err != nil {
			return err
		}
		return durable.Write(target, data)
	})
}

// hasMachines reports whether machines of the sweep may exist.
func (c *benchCluster) hasMachines() (bool, error) {
	source, err := nixeval.ParseFileSource(c.source)
	if c.flake {
		source, err = nixeval.ParseFlakeSource(c.source)
	}
	if err != nil {
		return false, err
	}
	dir, err := state.Locate(source, c.name)
	if err != nil {
		return false, err
	}
	recorded, err := dir.Load()
	return err == nil && hasMachines(recorded), err
}

// Remove implements [bench.Cluster].
func (c *benchCluster) Remove(ctx context.Context, log io.Writer) error {
	sub, err := c.newApp(ctx, c.first, log)
	if err != nil {
		return err
	}
	defer sub.view.Close()
	e, err := sub.newEvaluator()
	if err != nil {
		return err
	}
	if _, err := sub.surveyHive(e); err != nil {
		return err
	}
	c.state = sub.dir
	recorded, err := c.state.Load()
	if err != nil {
		return err
	}
	if hasMachines(recorded) {
		if err := sub.destroy(destroyFlags{parallel: 10, yes: true}); err != nil {
			return err
		}
	}
	lock, err := c.state.Lock(ctx, state.Self("bench"))
	if err != nil {
		return err
	}
	return errors.Join(copyState(filepath.Join(c.folder, ".nixbench", "reservation"), string(c.state)), lock.Unlock())
}

// hasMachines reports whether a machine of the state may exist.
func hasMachines(s *state.State) bool {
	for _, m := range s.Machines {
		if m.Image != nil || m.Created != nil {
			return true
		}
	}
	return len(s.Intents) > 0
}

// Deploy implements [bench.Cluster].
func (c *benchCluster) Deploy(ctx context.Context, configuration bench.Configuration, log io.Writer) (*bench.Running, error) {
	sub, err := c.newApp(ctx, configuration, log)
	if err != nil {
		return nil, err
	}
	defer sub.view.Close()
	flags, err := defaultApplyFlags()
	if err != nil {
		return nil, err
	}
	if err := runApply(sub, node.Switch, flags, nil, ""); err != nil {
		return nil, err
	}
	e, err := sub.newEvaluator()
	if err != nil {
		return nil, err
	}
	hive, err := sub.surveyHive(e)
	if err != nil {
		return nil, err
	}
	recorded, err := sub.dir.Load()
	if err != nil {
		return nil, err
	}
	out := &bench.Running{Systems: map[string]string{}, Domains: map[string]string{}}
	if out.Command, err = c.commandLine(configuration); err != nil {
		return nil, err
	}
	for _, n := range hive.Nodes {
		out.Domains[n.Name] = provider.Cluster{Name: hive.ClusterName()}.MachineName(n.Name)
		if d := recorded.Nodes[n.Name].LastConfirmed; d != nil {
			out.Systems[n.Name] = d.Path
		}
	}
	observer, err := machine.Observe(ctx, sub.connect(nil), hive.ClusterName(), recorded, nil)
	if err != nil {
		return nil, err
	}
	emulated, err := observer.Emulated(ctx)
	if err != nil {
		observer.Close()
		return nil, err
	}
	out.Doubts, out.States = doubts(hive, recorded, emulated), observer.States
	f := sub.newFleet(hive, fleetFlags{parallel: 10}, nil)
	out.Close = func() {
		observer.Close()
		f.Close()
	}
	for kind, members := range engine.MembersByKind(hive) {
		for _, m := range members {
			if m.OneByOne {
				if out.RoundTrip == nil {
					out.RoundTrip = func(ctx context.Context) (time.Duration, error) { return f.RoundTrip(ctx, m.Node) }
				}
				continue
			}
			role := hive.Roles[m.HiveRole]
			nodes := max(1, role.Hollow)
			out.Nodes += nodes
			out.CPUs += nodes * role.VCPUs
			out.Hollow += role.Hollow
		}
		cluster := engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.Run}
		client, err := findClient(hive, c.client, kind)
		if err != nil {
			out.Close()
			return nil, err
		}
		out.Player = func(w bench.WorkloadOptions) (player.Player, error) {
			return engineOf(kind).player(cluster, client, w.Players[kind])
		}
	}
	return out, nil
}

// commandLine returns the command line of nixbench for the cluster with a configuration, without a command.
func (c *benchCluster) commandLine(configuration bench.Configuration) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	flag := "--file"
	if c.flake {
		flag = "--flake"
	}
	out := []string{exe, flag, c.source}
	for _, s := range append(slices.Clone(c.sets), configuration.Sets()...) {
		out = append(out, "--set", s)
	}
	for _, o := range c.app.nixOptions {
		out = append(out, "--nix-option="+o)
	}
	if c.app.impure {
		out = append(out, "--impure")
	}
	if c.app.sshPrograms {
		out = append(out, "--allow-ssh-programs")
	}
	return out, nil
}

// defaultApplyFlags returns the defaults of apply's flags, with --yes.
func defaultApplyFlags() (applyFlags, error) {
	var flags applyFlags
	cmd := &cobra.Command{}
	flags.addTo(cmd)
	return flags, cmd.ParseFlags([]string{"--yes"})
}

// countHollow returns the number of hollow nodes in a hive.
func countHollow(hive *nixeval.Hive) int {
	n := 0
	for _, node := range hive.Nodes {
		n += hive.Roles[node.Role].Hollow
	}
	return n
}

// doubts returns why no result of a cluster is valid without reservations. emulated are the nodes whose machines are emulated, as libvirt reports.
func doubts(hive *nixeval.Hive, recorded *state.State, emulated []string) []string {
	var out []string
	if len(emulated) > 0 {
		out = append(out, bench.EmulatedDoubt)
	}
	for _, n := range hive.Nodes {
		if !machine.Boots(hive, n) {
			out = append(out, n.Name+" is not a machine of nixbench: it is not created again for a trial")
		}
	}
	used := map[string]bool{}
	for _, m := range recorded.Machines {
		used[m.Hypervisor] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		uri := recorded.Cluster.Hypervisors[name].URI
		if strings.Contains(uri, "+ssh://") || strings.Contains(uri, "+tls://") || strings.Contains(uri, "+tcp://") {
			out = append(out, "the hypervisor "+name+" is another computer, whose load was not observed")
		}
	}
	return out
}
