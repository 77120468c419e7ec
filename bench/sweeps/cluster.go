package sweeps

import (
	"context"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// cluster deploys the configurations of a sweep from the sweep's copy of the hive. The cluster has its own state folder, next
// to that copy, so the sweep never changes the machines of the cluster that a user deploys from the original hive.
type cluster struct {
	*Sweeps
	folder string // the folder of the sweep
	sweep  bench.Sweep
	source string // the hive in the copy: a file, or a flake reference
	// shared is the folder with the addresses and keys of the hive's last sweep. Sweeps of one hive use the same addresses and
	// keys, so that their systems differ only in what a user has changed. shared is empty if the sweep repeats an archive,
	// because such a sweep does not use the hive's state.
	shared string
	state  state.Dir // state folder of the cluster; empty until a session was opened
}

// newCluster returns the cluster of a sweep whose files are in folder.
func (s *Sweeps) newCluster(folder string, sweep bench.Sweep) *cluster {
	if absolute, err := filepath.Abs(folder); err == nil { // programs of workloads run elsewhere
		folder = absolute
	}
	c := &cluster{Sweeps: s, folder: folder, sweep: sweep, source: filepath.Join(folder, "source", sweep.Source)}
	if sweep.RepeatOf == "" {
		c.shared = filepath.Join(filepath.Dir(folder), "reservation")
	}
	if sweep.Flake && !sweep.Git {
		// A flake reference and not a plain path: for a path, Nix would look for the flake in the git repository that contains
		// the folder of the sweep.
		c.source = "path:" + (&url.URL{Path: c.source}).EscapedPath()
	}
	if sweep.Flake && sweep.Attr != "" {
		c.source += "#" + sweep.Attr
	}
	return c
}

// sets returns the arguments of the option --set for a configuration: those that the user has given, and the levels of the
// configuration's factors.
func (c *cluster) sets(configuration bench.Configuration) []string {
	return append(slices.Clone(c.sweep.Sets), configuration.SetArguments()...)
}

// open opens a session on the sweep's copy of the hive, with the factors of a configuration. The session writes its events to
// log. command is empty if the session only reads.
func (c *cluster) open(ctx context.Context, configuration bench.Configuration, command string, log io.Writer) (*deploy.Session, func(), error) {
	r := c.Request
	r.File, r.Flake = c.source, ""
	if c.sweep.Flake {
		r.File, r.Flake = "", c.source
	}
	r.Command, r.Nodes, r.On, r.Pick, r.Eval.Facts = command, deploy.SelectedNodes, nil, nil, ""
	if command == "apply" {
		r.Nodes, r.AllNodesOnly = deploy.DeployedNodes, true
	}
	var err error
	if r.Eval.Sets, err = nixeval.ParseSets(c.sets(configuration)); err != nil {
		return nil, nil, err
	}
	r.Eval.ExtraModules = c.sweep.Benchmark.ExtraModules(configuration)
	var end func()
	r.Send, end = c.Log(log)
	s, err := deploy.Open(ctx, r)
	if err != nil {
		end()
		return nil, nil, err
	}
	c.state, c.sweep.Cluster, c.sweep.Description = s.Dir, s.Hive.ClusterName(), s.Hive.Meta.Description
	return s, func() { s.Close(); end() }, nil
}

// freeze assigns the addresses of a configuration's nodes, and evaluates and builds the nodes' systems. No machine is created. freeze
// stores the systems and their closure in the configuration. Garbage collector roots in the sweep's folder protect the systems.
func (c *cluster) freeze(ctx context.Context, configuration *bench.Configuration, log io.Writer) error {
	s, end, err := c.open(ctx, *configuration, "bench", log)
	if err != nil {
		return err
	}
	defer end()
	if err := c.takeReservation(); err != nil {
		return err
	}
	if err := c.check(s.Hive, configuration.Levels); err != nil {
		return err
	}
	if err := s.Reserve(ctx); err != nil {
		return err
	}
	facts, err := c.keepFacts(configuration)
	if err != nil {
		return err
	}
	repeated, err := stages.Build(ctx, s.Eval.WithFacts(facts), s.Hive, s.Nodes, false)
	if err != nil {
		return err
	}
	built := repeated
	if facts != "" && facts != c.state.Facts() {
		if built, err = stages.Build(ctx, s.Eval.WithFacts(c.state.Facts()), s.Hive, s.Nodes, false); err != nil {
			return err
		}
	}
	configuration.Hollow = 0
	for _, n := range s.Hive.Nodes {
		configuration.Hollow += s.Hive.Roles[n.Role].Hollow
	}
	configuration.Systems = map[string]bench.System{}
	for _, b := range built {
		configuration.Systems[b.Node] = bench.System{Drv: b.Drv, Path: b.Path}
	}
	var paths []string
	for _, b := range slices.Concat(built, repeated) {
		paths = append(paths, b.Path, b.Drv)
	}
	if err := keep(ctx, s.Eval, c.folder, paths); err != nil {
		return err
	}
	configuration.Closure, err = s.Eval.Requisites(ctx, stats.Map(repeated, func(b stages.Closure) string { return b.Path }))
	return err
}

// keep protects store paths from the garbage collector as long as the folder of a sweep exists.
func keep(ctx context.Context, e *nixeval.Evaluator, folder string, paths []string) error {
	roots := map[string]string{}
	for _, path := range paths {
		roots[filepath.Join(folder, "gcroots", filepath.Base(path))] = path
	}
	return e.Keep(ctx, roots)
}

// check returns an error for a hive that cannot be benchmarked, such as a hive without a machine that nixbench creates, or
// with two schedulers.
func (c *cluster) check(hive *nixeval.Hive, levels map[string]string) error {
	if !hive.Meta.AllowApplyAll {
		return failure.NewUsage("meta.allowApplyAll is false in the hive, and a benchmark deploys all its nodes")
	}
	if len(machine.Booted(hive, hive.Nodes)) == 0 {
		return failure.WithHint(failure.NewUsage("no node of the hive is a machine that nixbench creates, and a benchmark creates its machines"),
			"describe them in roles (docs/provisioning.md)")
	}
	if len(hive.Broken) > 0 {
		return nil // the build reports this error
	}
	kinds := engine.KindsOf(hive, deploy.EngineKinds())
	const hint = "import the modules of one scheduler, or choose one with the factor scheduler (docs/schedulers.md)"
	switch {
	case len(kinds) == 0:
		return failure.WithHint(failure.NewUsage("no node of the hive runs a scheduler, and a benchmark needs one"), hint)
	case len(kinds) > 1:
		return failure.WithHint(failure.NewUsage("the nodes of the hive run %s and %s, and a benchmark needs one scheduler", kinds[0].Title, kinds[1].Title), hint)
	case c.Schedulers[kinds[0].Name].NewPlayer == nil:
		return failure.NewUsage("nixbench cannot submit the jobs of a benchmark to %s", kinds[0].Title)
	}
	if !c.Schedulers[kinds[0].Name].Arrays && c.sweep.HasArrays(levels) {
		return failure.WithHint(failure.NewUsage("%s has no job arrays, and the benchmark has cells with submission=array for it", kinds[0].Title),
			"leave these cells out with exclude")
	}
	_, err := c.findClient(hive, kinds[0])
	return err
}

// keepFacts returns the file with the facts (addresses and hashes of keys) from which the closure of a configuration is built.
// If the sweep repeats another one, these are the facts of the other sweep. Otherwise keepFacts copies the facts of the cluster
// into the sweep's folder.
func (c *cluster) keepFacts(configuration *bench.Configuration) (string, error) {
	kept := filepath.Join(c.folder, "facts", configuration.FactsFile())
	if durable.Exists(kept) {
		return kept, nil
	}
	if !durable.Exists(c.state.Facts()) {
		return "", nil
	}
	data, err := durable.Read(c.state.Facts(), durable.RecordSize)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return "", err
	}
	return c.state.Facts(), durable.Write(kept, data)
}

// Remove implements [bench.Cluster].
func (c *cluster) Remove(ctx context.Context, log io.Writer) error {
	s, end, err := c.open(ctx, c.sweep.Configurations[0], "destroy", log) // any configuration serves to remove machines
	if err != nil {
		return err
	}
	defer end()
	recorded, err := s.State()
	if err != nil {
		return err
	}
	if hasMachines(recorded) {
		if _, _, err := s.Destroy(ctx, deploy.DestroyRequest{Options: stages.Options{Parallel: 10, Drain: c.Apply.Drain}}); err != nil {
			return err
		}
	}
	return copyState(filepath.Join(c.folder, ".nixbench", "reservation"), string(c.state))
}

// Deploy implements [bench.Cluster].
func (c *cluster) Deploy(ctx context.Context, configuration bench.Configuration, log io.Writer) (*bench.Running, error) {
	if err := c.apply(ctx, configuration, log); err != nil {
		return nil, err
	}
	s, end, err := c.open(ctx, configuration, "", log) // without taking the state folder's lock, because the program of a workload may run other nixbench commands
	if err != nil {
		return nil, err
	}
	out, err := c.describe(ctx, s, configuration)
	if err != nil {
		end()
		return nil, err
	}
	closeObserver := out.Close
	out.Close = func() {
		closeObserver()
		end()
	}
	return out, nil
}

func (c *cluster) apply(ctx context.Context, configuration bench.Configuration, log io.Writer) error {
	s, end, err := c.open(ctx, configuration, "apply", log)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.Apply(ctx, deploy.ApplyOptions{Options: c.Apply})
	return err
}

// describe returns the running cluster of a session. The caller must call Close of the result.
func (c *cluster) describe(ctx context.Context, s *deploy.Session, configuration bench.Configuration) (*bench.Running, error) {
	recorded, err := s.State()
	if err != nil {
		return nil, err
	}
	out := &bench.Running{Systems: map[string]string{}}
	if out.Command, err = c.commandLine(configuration); err != nil {
		return nil, err
	}
	for _, n := range s.Hive.Nodes {
		if d := recorded.Nodes[n.Name].LastConfirmed; d != nil {
			out.Systems[n.Name] = d.Path
		}
	}
	for kind, members := range engine.MembersByKind(s.Hive) {
		for _, m := range members {
			if m.OneByOne {
				continue
			}
			role := s.Hive.Roles[m.HiveRole]
			nodes := max(1, role.Hollow)
			out.Nodes += nodes
			out.CPUs += nodes * role.VCPUs
			out.Hollow += role.Hollow
		}
		of := engine.Cluster{Name: s.Hive.ClusterName(), Members: members, Run: s.Fleet.Run}
		client, err := c.findClient(s.Hive, engine.KindsOf(s.Hive, deploy.EngineKinds())[0]) // there is one: see check
		if err != nil {
			return nil, err
		}
		out.Player = func(w bench.WorkloadOptions, arrays bool) (player.Player, error) {
			return c.Schedulers[kind].NewPlayer(of, client, arrays, w.Players[kind])
		}
	}
	observer, err := machine.NewObserver(s.Machines.Open, s.Hive.ClusterName(), recorded)
	if err != nil {
		return nil, err
	}
	emulated, processes, err := observer.Machines(ctx)
	if err != nil {
		observer.Close()
		return nil, err
	}
	out.Doubts, out.Processes, out.States, out.Close = doubts(s.Hive, recorded, emulated), processes, observer.States, observer.Close
	return out, nil
}

// commandLine returns the command line with which the program of a workload runs nixbench on the cluster of a configuration, without a
// command such as `exec`.
func (c *cluster) commandLine(configuration bench.Configuration) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out := []string{exe, "--file", c.source}
	if c.sweep.Flake {
		out[1] = "--flake"
	}
	for _, s := range c.sets(configuration) {
		out = append(out, "--set", s)
	}
	for _, o := range c.Request.Eval.NixOptions {
		out = append(out, "--nix-option="+o[0]+"="+o[1])
	}
	if c.Request.Eval.Impure {
		out = append(out, "--impure")
	}
	if c.Request.SSHPrograms {
		out = append(out, "--allow-ssh-programs")
	}
	return out, nil
}

// doubts returns the reasons why all results of a cluster are doubtful, such as emulated CPUs. emulated has the nodes whose
// machines are emulated, as libvirt reports.
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
		if strings.HasPrefix(uri, "lxc") {
			out = append(out, bench.SharedKernelDoubt)
		}
		if strings.Contains(uri, "+ssh://") || strings.Contains(uri, "+tls://") || strings.Contains(uri, "+tcp://") {
			out = append(out, "the hypervisor "+name+" is another computer, whose load was not observed")
		}
	}
	return slices.Compact(out)
}
