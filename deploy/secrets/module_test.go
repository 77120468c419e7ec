package secrets

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

const moduleHive = `let
  base = { system.stateVersion = "25.05"; };
in {
  meta.nixpkgs = import <nixpkgs> { };
  defaults = base;
  plain = { };
  late = { deployment.keys."late.key" = { keyCommand = [ "echo" "correct-horse" ]; uploadAt = "post-activation"; }; };
  keys = { deployment.keys = {
    db-pass = { text = "correct-horse"; user = "o'hara"; permissions = "0440"; };
    "a b%c" = { text = "correct-horse"; destDir = "/var/x y%z"; };
    "schlüssel" = { text = "correct-horse"; };
    "*.pem" = { text = "correct-horse"; };
  }; };
  born = { lib, ... }: {
    options.services.userborn.enable = lib.mkEnableOption "users made by a unit";
    config.services.userborn.enable = true;
    config.deployment.keys.soon.text = "correct-horse";
  };
  roles.worker.modules = [ { deployment.keys.shared.text = "correct-horse"; } ];
}
`

// The module is part of every node, changes nothing if there are no keys, and puts no key into
// the store.
func TestModule(t *testing.T) {
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	t.Setenv("NIX_PATH", "nixpkgs="+fixture.Nixpkgs(t))
	file := filepath.Join(t.TempDir(), "hive.nix")
	if err := os.WriteFile(file, []byte(moduleHive), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := nixeval.ParseFileSource(file)
	if err != nil {
		t.Fatal(err)
	}
	e := nixeval.New(nixeval.Options{Source: source})
	data, err := e.Introspect(t.Context(), nixeval.Expression{Text: `{ nodes, pkgs, lib, ... }: {
	  units = lib.mapAttrs (_: n: lib.filter (lib.hasInfix "key") (lib.attrNames n.config.systemd.units)) nodes;
	  scripts = lib.mapAttrs (_: n: n.config.system.activationScripts ? nixbench-chown-keys) nodes;
	  links = builtins.unsafeDiscardStringContext nodes.keys.config.environment.etc."nixbench/keys".source.drvPath;
	  plain = nodes.plain.config.system.build.toplevel.drvPath == (import (pkgs.path + "/nixos/lib/eval-config.nix") {
	    system = "x86_64-linux";
	    modules = [ { system.stateVersion = "25.05"; } ];
	  }).config.system.build.toplevel.drvPath;
	}`})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Units   map[string][]string
		Scripts map[string]bool
		Links   string
		Plain   bool
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Plain {
		t.Error("a node without keys is not what it is without us")
	}
	units := map[string][]string{
		"plain": {}, "late": {"late.key-key.service", "nixbench-keys.service"},
		"keys":     {`\x2a.pem-key.service`, `a\x20b\x25c-key.service`, "db-pass-key.service", "nixbench-keys.service"},
		"born":     {"nixbench-chown-keys.service", "nixbench-keys.service", "soon-key.service"},
		"worker-1": {"nixbench-keys.service", "shared-key.service"},
	}
	if diff := cmp.Diff(units, got.Units); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]bool{"plain": false, "late": false, "born": false, "keys": true, "worker-1": true}, got.Scripts); diff != "" {
		t.Error(diff)
	}
	closures, err := e.Instantiate(t.Context(), []string{"plain", "late", "keys", "born", "worker"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The key "schlüssel" has no unit, because units cannot have this name.
	out, err := exec.Command("sh", "-c", `cd "$(nix-store --realise "$1")" && find . -type l -printf '%P %l\n' | LC_ALL=C sort`, "sh", got.Links).Output()
	if want := `\x2a.pem-key /run/keys/*.pem
a\x20b\x25c-key /var/x y%z/a b%c
db-pass-key /run/keys/db-pass
run/\x2a.pem-key /run/keys/*.pem
run/db-pass-key /run/keys/db-pass
`; err != nil || string(out) != want {
		t.Errorf("%v, the links are %s", err, out)
	}
	for unit, c := range closures {
		found, _ := exec.Command("sh", "-c", `grep -rl correct-horse $(nix-store -qR "$1")`, "sh", c.Drv).Output()
		if len(found) > 0 {
			t.Errorf("%s: the key is in %s", unit, found)
		}
	}
}

// At a boot, keys in /run are missing, so the script that sets owners prints nothing about them. It reports a key whose
// owner it cannot set.
func TestOwnersOfMissingKeys(t *testing.T) {
	keys := t.TempDir()
	script := ownersScript(t, fmt.Sprintf(`{
	    missing = { text = "x"; destDir = %[1]q; };
	    present = { text = "x"; destDir = %[1]q; user = "no-such-user"; };
	}`, keys))
	if out, err := exec.Command("bash", "-c", script).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("with no key: %v, and the script prints %q", err, out)
	}
	if err := os.WriteFile(filepath.Join(keys, "present"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-c", script).CombinedOutput(); err == nil || !strings.Contains(string(out), "Some keys did not get their owner.") {
		t.Errorf("with a key of an unknown user: %v, and the script prints %q", err, out)
	}
}

// ownersScript returns the part of the activation that sets the owners of keys.
func ownersScript(t *testing.T, keys string) string {
	t.Helper()
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	t.Setenv("NIX_PATH", "nixpkgs="+fixture.Nixpkgs(t))
	file := filepath.Join(t.TempDir(), "hive.nix")
	text := `{ meta.nixpkgs = import <nixpkgs> { }; defaults.system.stateVersion = "25.05"; a.deployment.keys = ` + keys + `; }`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := nixeval.ParseFileSource(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := nixeval.New(nixeval.Options{Source: source}).Introspect(t.Context(),
		nixeval.Expression{Text: `{ nodes, ... }: nodes.a.config.system.activationScripts.nixbench-chown-keys.text`})
	if err != nil {
		t.Fatal(err)
	}
	var script string
	if err := json.Unmarshal(data, &script); err != nil {
		t.Fatal(err)
	}
	return script
}
