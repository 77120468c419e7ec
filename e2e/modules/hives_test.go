package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// factsOfReference are the facts of the reference hive when its machines exist.
const factsOfReference = `{
  "version": 1, "cluster": "reference",
  "nodes": {
    "control-plane-1": {"role": "control-plane", "index": 1, "address": "192.168.222.10"},
    "worker-1": {"role": "worker", "index": 1, "address": "192.168.222.11"},
    "worker-2": {"role": "worker", "index": 2, "address": "192.168.222.12"}
  },
  "roles": {"control-plane": ["control-plane-1"], "worker": ["worker-1", "worker-2"]},
  "network": {"name": "scheduler_benchmark_net", "cidr": "192.168.222.0/24"},
  "endpoint": {"address": "192.168.222.10", "port": 6443},
  "caHash": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
}`

// factsOfSchedulers are the facts of the template schedulers when its machines exist.
const factsOfSchedulers = `{
  "version": 1, "cluster": "schedulers",
  "nodes": {
    "head-1": {"role": "head", "index": 1, "address": "192.168.223.10", "vcpus": 2, "memory": "4G"},
    "node-1": {"role": "node", "index": 1, "address": "192.168.223.11", "vcpus": 2, "memory": "4G"},
    "node-2": {"role": "node", "index": 2, "address": "192.168.223.12", "vcpus": 2, "memory": "4G"}
  },
  "roles": {"head": ["head-1"], "node": ["node-1", "node-2"]},
  "network": {"name": "schedulers", "cidr": "192.168.223.0/24"},
  "endpoint": {"address": "192.168.223.10", "port": 6443},
  "caHash": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
}`

// wrapper is a hive that is another one with a package set, in which the programs that are written in Haskell are others:
// the nixpkgs of the tests may lack the list of Haskell packages. %s are the path of the hive's file, of the modules
// and of the repository. A flake is called with the package set's nixpkgs as its input.
const wrapper = `let
  top = %[2]q;
  nixpkgs = import <nixpkgs> {
    system = "x86_64-linux";
    overlays = [ (_: old: let other = old.hello // { compiler.bootstrapAvailable = false; }; in { shellcheck = other; shellcheck-minimal = other; pandoc = other; }) ];
  };
  input = { outPath = <nixpkgs>; inherit (nixpkgs) lib; legacyPackages.x86_64-linux = nixpkgs; };
  call = file: inputs: let flake = (import file).outputs (inputs // { self = flake; }); in flake;
  raw = import %[1]q;
  hive =
    if raw ? outputs then
      (call %[1]q { nixpkgs = input; nixbench = call (/. + top + "/flake.nix") { nixpkgs = input; }; }).nixbenchHive
    else if builtins.isFunction raw then
      raw (builtins.intersectAttrs (builtins.functionArgs raw) { inherit nixpkgs; modules = /. + top + "/modules"; })
    else
      raw;
in
hive // { meta = hive.meta // { inherit nixpkgs; }; }
`

// clientRole adds a role for the client of a benchmark to the template schedulers. %s is the path of the repository.
const clientRole = `roles = hive.roles // {
  client = {
    schedulers.kubernetes.modules = [ %[1]s/modules/kubernetes/client.nix ];
    schedulers.slurm.modules = [ %[1]s/modules/slurm/login.nix ];
  };
};`

// The reference hive and all templates evaluate without a warning and without a failed assertion.
func TestHivesHaveNoWarnings(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(top, "hive.nix")}
	for _, pattern := range []string{"hive.nix", "flake.nix"} {
		found, err := filepath.Glob(filepath.Join(top, "templates", "*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 9 {
		t.Fatalf("only %q", files)
	}
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		t.Setenv("NIX_CONFIG", fixture.NixConfig)
		t.Setenv("NIX_PATH", "nixpkgs="+nixpkgs)
		check := func(name, file, facts string, sets ...nixeval.Set) {
			t.Run(name, func(t *testing.T) {
				for _, warning := range evaluateHive(t, fmt.Sprintf(wrapper, file, top), facts, sets...) {
					t.Errorf("warning: %s", warning)
				}
			})
		}
		for _, file := range files {
			name, _ := filepath.Rel(top, file)
			facts := ""
			if !strings.Contains(file, "/templates/") {
				facts = factsOfReference
			}
			check(name, file, facts)
		}
		for _, scheduler := range []string{"kubernetes", "slurm"} {
			file := filepath.Join(top, "templates/schedulers/hive.nix")
			set := nixeval.Set{Path: []string{"cluster", "scheduler"}, Raw: scheduler}
			check("templates/schedulers with "+scheduler, file, factsOfSchedulers, set)
			t.Run("a client of "+scheduler, func(t *testing.T) {
				text := strings.Replace(fmt.Sprintf(wrapper, file, top), "hive // {", "hive // { "+fmt.Sprintf(clientRole, top), 1)
				for _, warning := range evaluateHive(t, text, factsOfSchedulers, set) {
					t.Errorf("warning: %s", warning)
				}
			})
		}
	})
	t.Run("control", func(t *testing.T) {
		t.Setenv("NIX_CONFIG", fixture.NixConfig)
		t.Setenv("NIX_PATH", "nixpkgs="+fixture.Nixpkgs(t))
		const hive = `{ meta.nixpkgs = import <nixpkgs> { }; a = { system.stateVersion = "25.05"; warnings = [ "too old" ]; }; }`
		if got := evaluateHive(t, hive, ""); !slices.Equal(got, []string{"too old"}) {
			t.Errorf("the warnings of a node with a warning are %q", got)
		}
	})
}

// evaluateHive evaluates the systems of all nodes of a hive, with facts if there are any and with the given arguments of
// --set, and returns the warnings.
func evaluateHive(t *testing.T, text, facts string, sets ...nixeval.Set) []string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "hive.nix")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := nixeval.ParseFileSource(file)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var warnings []string
	e := nixeval.New(nixeval.Options{Source: source, Sets: sets, Send: func(ev event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if ev.Kind == event.Message {
			warnings = append(warnings, ev.Text)
		}
	}})
	if facts != "" {
		file := filepath.Join(dir, "runtime.json")
		if err := os.WriteFile(file, []byte(facts), 0o600); err != nil {
			t.Fatal(err)
		}
		e = e.WithFacts(file)
	}
	hive, err := e.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var units []string
	for _, u := range hive.Units {
		units = append(units, u.Name)
	}
	_, err = e.Instantiate(t.Context(), units, nil)
	var failed *nixeval.EvalError
	if errors.As(err, &failed) {
		for unit, err := range failed.Units {
			t.Errorf("%s: %v", unit, err)
		}
	} else if err != nil {
		t.Error(err)
	}
	return warnings
}
