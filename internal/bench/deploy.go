package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// A scenario is one measured operation of a deploy tool. Before each measurement the same tool applies a hive, which is not measured.
type scenario struct {
	name, title string
	keys        int                  // number of keys that each node has before the measurement
	goal        string               // switch, upload-keys or push
	one         bool                 // only on the first node
	change      func(h *hive, n int) // changes the hive that was applied into the hive that is measured; n is a new number for contents
}

var scenarios = []scenario{
	{name: "first", title: "first apply of a fresh closure", goal: "switch", change: func(h *hive, n int) { h.fresh, h.line = n, n }},
	{name: "noop", title: "apply without changes", goal: "switch", change: func(*hive, int) {}},
	{name: "line", title: "one line changed on all nodes", goal: "switch", change: func(h *hive, n int) { h.line = n }},
	{name: "line-one", title: "one line changed, on one node", goal: "switch", one: true, change: func(h *hive, n int) { h.line = n }},
	{name: "keys-new", title: "apply with 17 new keys per node", goal: "switch", change: func(h *hive, n int) { h.keys, h.keySet, h.keyVersion = 17, n, n }},
	{name: "keys-changed", title: "upload-keys with 20 changed keys per node", keys: 20, goal: "upload-keys", change: func(h *hive, n int) { h.keyVersion = n }},
	{name: "keys-same", title: "upload-keys with 20 unchanged keys per node", keys: 20, goal: "upload-keys", change: func(*hive, int) {}},
	{name: "copy-one", title: "a large path to one node", goal: "push", one: true, change: func(h *hive, _ int) { h.large = true }},
	{name: "copy-all", title: "a large path to all nodes", goal: "push", change: func(h *hive, _ int) { h.large = true }},
}

// runner measures the scenarios with each tool on the machines of a lab.
type runner struct {
	machines, repeat, load int
	generations, size      int
	dir                    string // folder for all files; it is removed at the end
	lab                    *lab.Lab
	nodes                  *nodes
	tools                  []*tool
	salt                   string // part of store paths that no earlier measurement has made
	counter                int
	large                  string // the store path that copy-one and copy-all copy, if it is built
}

// run measures the scenarios, and returns the figures by the name of the scenario and the name of the tool.
func run(ctx context.Context, args []string) (results map[string]map[string][]figures, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &runner{salt: strconv.FormatInt(time.Now().UnixNano(), 36)}
	if r.dir, err = os.MkdirTemp("", "nixbench-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.dir)
	selected, err := r.parse(args)
	if err != nil {
		return nil, err
	}
	l, err := lab.Up(filepath.Join(r.dir, "lab"), r.machines)
	if l != nil {
		defer func() { err = errors.Join(err, l.Down()) }()
	}
	if err != nil {
		return nil, err
	}
	r.lab = l
	if r.nodes, err = findNodes(ctx, l); err != nil {
		return nil, err
	}
	if err := r.makeGenerations(ctx); err != nil {
		return nil, err
	}
	defer func() { // if this fails, the next garbage collection deletes the path
		_ = exec.Command("sh", "-c", deleteLarge(r.large)).Run()
	}()
	if err := startLoad(ctx, r.load); err != nil {
		return nil, err
	}
	failed := 0
	results = map[string]map[string][]figures{}
	for _, s := range selected {
		runs, failures := r.measureScenario(ctx, s)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failed += failures
		results[s.name] = runs
		if err := printTable(os.Stdout, s.name+": "+s.title, r.tools, runs); err != nil {
			return nil, err
		}
	}
	if failed > 0 {
		return nil, fmt.Errorf("%d runs failed", failed)
	}
	return results, nil
}

// measureScenario runs a scenario with each tool in turn, and returns the figures by the name of the tool, and the number of failed runs.
func (r *runner) measureScenario(ctx context.Context, s scenario) (runs map[string][]figures, failed int) {
	runs = map[string][]figures{}
	for i := range r.repeat {
		for _, t := range r.tools {
			f, err := r.measureRun(ctx, s, t)
			if ctx.Err() != nil {
				return runs, failed
			}
			if err != nil {
				failed++
				t.current = false
				fmt.Fprintf(os.Stderr, "%s: %s: run %d failed: %v\n", s.name, t.label, i+1, err)
				continue
			}
			runs[t.label] = append(runs[t.label], f)
			fmt.Fprintf(os.Stderr, "%s: %s: run %d: %.2f s, nodes %.2f s of processor time\n", s.name, t.label, i+1, f[wall], f[nodeCPU])
		}
	}
	return runs, failed
}

// selectScenarios returns the scenarios with these names, in the order of the table.
func selectScenarios(names string) (out []scenario, err error) {
	wanted := strings.Split(names, ",")
	for _, s := range scenarios {
		if names == "" || slices.Contains(wanted, s.name) {
			out = append(out, s)
		}
	}
	if names != "" && len(out) != len(wanted) {
		return nil, fmt.Errorf("not all of %q are scenarios", wanted)
	}
	return out, nil
}

// measureRun prepares the nodes, runs the scenario once with the tool t, and returns what it measured.
func (r *runner) measureRun(ctx context.Context, s scenario, t *tool) (f figures, err error) {
	r.counter++
	if !t.current || t.applied.keys != s.keys || t.applied.fresh != 0 || t.applied.large {
		if _, err := r.runTool(ctx, t, "switch", "", hive{keys: s.keys, line: r.counter, keyVersion: r.counter}); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		r.counter++
	}
	measured, on := t.applied, ""
	s.change(&measured, r.counter)
	if s.one {
		on = r.lab.Machines[0].Name
	}
	if s.goal == "push" { // only the copy is measured
		if err := r.prepareLarge(ctx, t, on, measured); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		defer func() { err = errors.Join(err, r.runOnNodes(ctx, deleteLarge(r.large))) }()
	}
	before, err := r.nodes.readQuiet(ctx)
	if err != nil {
		return nil, err
	}
	if f, err = r.runTool(ctx, t, s.goal, on, measured); err != nil {
		return nil, err
	}
	after, err := r.nodes.readQuiet(ctx)
	if err != nil {
		return nil, err
	}
	f[nodeCPU] = after.cpu - before.cpu
	if addressed := float64(r.machines); r.nodes.trace != nil {
		if s.one {
			addressed = 1
		}
		f[programs] = float64(after.programs-before.programs) / addressed
	}
	return f, r.checkNodes(ctx, s, measured)
}

// runTool writes the hive h for the tool t, and runs the tool inside of the lab's network, on all nodes or on the node named on.
// Unless the goal is build, it records that the nodes have what t has applied, and no longer what other tools have applied.
func (r *runner) runTool(ctx context.Context, t *tool, goal, on string, h hive) (figures, error) {
	nixpkgs, err := r.assembleNixpkgs(h.fresh)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(t.dir, "hive.nix"), []byte(r.describeHive(h)), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	argv := t.argv(goal, on)
	cmd := r.lab.NetworkCommand(ctx, argv[0], argv[1:]...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "NIX_CONFIG="+fixture.NixConfig, "SSH_AUTH_SOCK=", "NO_COLOR=1", "NIX_PATH=nixpkgs="+nixpkgs)
	f, err := measure(cmd)
	if err == nil && goal != "build" {
		for _, other := range r.tools {
			other.current = false
		}
		t.applied, t.current = h, on == ""
	}
	return f, err
}

// checkNodes returns an error if a node does not have what the hive contains, so that no tool is measured that did nothing.
func (r *runner) checkNodes(ctx context.Context, s scenario, h hive) error {
	for i, m := range r.lab.Machines {
		want, file := h.lineText(), "/etc/which"
		switch {
		case s.one && i > 0:
			return nil
		case s.goal == "push":
			want, file = "", r.large
		case h.keys > 0:
			want, file = h.keyText(h.keys-1, m.Name), "/run/keys/"+h.keyName(h.keys-1)
		}
		if out, err := r.lab.SSH(ctx, m.Name, "grep -cF '"+want+"' "+file).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s does not contain %q after the run: %w\n%s", m.Name, file, want, err, out)
		}
	}
	return nil
}

// makeGenerations adds generations to the system profile of each node. All of them contain the system of the first apply.
func (r *runner) makeGenerations(ctx context.Context) error {
	if r.generations == 0 {
		return nil
	}
	if _, err := r.runTool(ctx, r.tools[0], "switch", "", hive{}); err != nil {
		return err
	}
	r.tools[0].current = false // the first tool must deploy again, because it records the number of the current generation
	script := fmt.Sprintf(`set -eu
cd /nix/var/nix/profiles
system=$(readlink -f system) last=$(readlink system) number=${last#system-} number=${number%%-link}
for i in $(seq $((number + 1)) $((number + %d))); do ln -s "$system" "system-$i-link"; done
ln -sfn "system-$i-link" system`, r.generations)
	return r.runOnNodes(ctx, script)
}

// runOnNodes runs a script on all nodes, one after the other.
func (r *runner) runOnNodes(ctx context.Context, script string) error {
	for _, m := range r.lab.Machines {
		if out, err := r.lab.SSH(ctx, m.Name, script).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s: %w\n%s", m.Name, script, err, out)
		}
	}
	return nil
}

// prepareLarge builds the large store path, if it is not built yet, and the systems that contain this path. It copies nothing to the nodes.
func (r *runner) prepareLarge(ctx context.Context, t *tool, on string, h hive) error {
	if r.large == "" {
		cmd := exec.CommandContext(ctx, "nix-build", "--no-out-link", "-E", r.describeLarge())
		cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("nix-build of the large path: %w", err)
		}
		r.large = strings.TrimSpace(string(out))
	}
	_, err := r.runTool(ctx, t, "build", on, h)
	return err
}

func (r *runner) describeLarge() string {
	return fmt.Sprintf(`(derivation { name = "bench-large"; system = builtins.currentSystem; builder = "/bin/sh"; salt = %q;
        args = [ "-c" "/usr/bin/head -c %d /dev/urandom >$out" ]; })`, r.salt, r.size*1_000_000)
}

// deleteLarge returns a command that deletes the large store path, and all paths that refer to it. The command does nothing if path does
// not exist.
func deleteLarge(path string) string {
	return fmt.Sprintf("[ ! -e '%[1]s' ] || nix-store --delete --ignore-liveness $(nix-store --query --referrers-closure %[1]s) >/dev/null", path)
}

// hive describes what hive.nix contains.
type hive struct {
	fresh              int  // number of the nixpkgs; all store paths of the systems depend on it
	line               int  // content of /etc/which
	keys               int  // number of keys of each node
	keySet, keyVersion int  // keySet is part of the keys' names, keyVersion of their contents
	large              bool // the systems contain the large path
}

func (h hive) lineText() string { return fmt.Sprintf("line %d", h.line) }

func (h hive) keyName(key int) string { return fmt.Sprintf("key-%d-%d", h.keySet, key) }

func (h hive) keyText(key int, node string) string {
	return fmt.Sprintf("content of key %d, version %d, on %s", key, h.keyVersion, node)
}

// describeHive returns the text of hive.nix for h.
func (r *runner) describeHive(h hive) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{
  meta.nixpkgs = import <nixpkgs> { };
  defaults = { name, lib, ... }: {
    deployment.sshOptions = [ "-F" %q ];
    networking.firewall.enable = lib.mkDefault false;
    networking.hostName = "";
    system.stateVersion = "25.05";
    nix.settings.trusted-users = [ "root" ];
    environment.etc."node".text = name; # each node has a system of its own
    environment.etc."which".text = %q;
`, r.lab.SSHConfig, h.lineText())
	for key := range h.keys {
		fmt.Fprintf(&b, "    deployment.keys.%q.text = \"%s\";\n", h.keyName(key), h.keyText(key, "${name}"))
	}
	if h.large {
		fmt.Fprintf(&b, "    environment.etc.large.source = %s;\n", r.describeLarge())
	}
	b.WriteString("  };\n")
	for _, m := range r.lab.Machines {
		fmt.Fprintf(&b, "  %s = { };\n", m.Name)
	}
	return b.String() + "}\n"
}

// assembleNixpkgs assembles a small NixOS, with a busybox that no other nixpkgs has, and returns its folder. All builds use this busybox,
// so no store path of a system exists before.
func (r *runner) assembleNixpkgs(number int) (string, error) {
	target := filepath.Join(r.dir, fmt.Sprintf("nixpkgs-%d", number))
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := fixture.Assemble(target); err != nil {
		return "", err
	}
	busybox, err := os.OpenFile(filepath.Join(target, "busybox/bin/busybox"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(busybox, "\n%s %d\n", r.salt, number) // the kernel ignores bytes after the end of an ELF file
	return target, errors.Join(err, busybox.Close())
}
