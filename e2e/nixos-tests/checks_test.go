package nixostests

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// check is what the tests read from a check.
type check struct {
	Driver   string            // derivation of the test driver
	Script   string            // the test script
	Machines []string          // names of the machines
	Hives    map[string]string // content of test.json of each hive
}

// checkExpression returns a check. Programs in Haskell are replaced, because not every copy of nixpkgs
// contains the large file with their packages.
const checkExpression = `
let
  pkgs = import %[1]s {
    system = "x86_64-linux";
    overlays = [ (final: prev: {
      shellcheck = prev.writeShellScriptBin "shellcheck" "exit 1" // { compiler.bootstrapAvailable = true; };
      shellcheck-minimal = final.shellcheck;
      pandoc = prev.writeShellScriptBin "pandoc" "exit 1";
    }) ];
  };
  inherit (pkgs) lib;
  texts = etc: lib.mapAttrs' (path: file: lib.nameValuePair (builtins.elemAt (lib.splitString "/" path) 1) file.text)
    (lib.filterAttrs (path: _: lib.hasPrefix "hives/" path && lib.hasSuffix "/test.json" path) etc);
in
let
  test = (import %[2]s { inherit pkgs; nixbench = pkgs.hello; }).%[3]s;
in
{
  Driver = test.driver.drvPath;
  Script = test.config.testScriptString;
  Machines = lib.attrNames test.nodes;
  Hives = texts test.nodes.operator.environment.etc;
}
`

// readCheck instantiates a check with the given nixpkgs.
func readCheck(t *testing.T, nixpkgs, name string) check {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nix", "--extra-experimental-features", "nix-command", "eval", "--json", "--impure",
		"--expr", fmt.Sprintf(checkExpression, nixpkgs, here, name))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("evaluate the check: %v\n%s", err, stderr.String())
	}
	var c check
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each check can be instantiated, the types of its script are correct, and nixbench gets the expected systems from its hives.
func TestChecks(t *testing.T) {
	nixpkgs := os.Getenv("NIXBENCH_NIXPKGS")
	if nixpkgs == "" {
		t.Skip("NIXBENCH_NIXPKGS is not set to the folder of a complete nixpkgs")
	}
	fixture.Require(t, "nix", "python3")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	for _, name := range []string{"existing-machines", "kubernetes-cluster", "hypervisor"} {
		t.Run(name, func(t *testing.T) {
			c := readCheck(t, nixpkgs, name)
			if _, err := os.Stat(c.Driver); err != nil {
				t.Error("not instantiated: ", err)
			}
			if len(c.Hives) < 2 {
				t.Errorf("%d hives, want two at least", len(c.Hives))
			}
			checkScript(t, nixpkgs, c)
			for hive, text := range c.Hives {
				checkHive(t, hive, text)
			}
		})
	}
}

// checkScript checks the script as the derivation of the test driver does, with the type hints of this nixpkgs. Python always
// compiles it; ty, mypy and ruff check it if they are installed.
func checkScript(t *testing.T, nixpkgs string, c check) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(nixpkgs, "nixos/lib/test-script-prepend.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Machines {
		text = fmt.Appendf(text, "%s = create_fake_qemu_machine()\n", strings.ReplaceAll(m, "-", "_"))
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "script.py")
	if err := os.WriteFile(script, append(text, c.Script...), 0o600); err != nil {
		t.Fatal(err)
	}
	driver := filepath.Join(nixpkgs, "nixos/lib/test-driver/src")
	for _, argv := range [][]string{
		{"python3", "-m", "py_compile", script},
		{"ty", "check", "--extra-search-path", driver, script},
		{"mypy", "--cache-dir", dir, "--ignore-missing-imports", "--no-implicit-optional", "--follow-imports", "silent", script},
		{"ruff", "check", "--no-cache", "--select", "F", script},
	} {
		path, err := exec.LookPath(argv[0])
		if err != nil && argv[0] != "python3" {
			t.Log(argv[0], " is not installed, so it does not check the script")
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, argv[1:]...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+driver, "MYPYPATH="+driver, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPYCACHEPREFIX="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", argv[0], err, out)
		}
	}
}

// newEvaluator returns an evaluator of hive.nix with this test.json.
func newEvaluator(t *testing.T, test []byte) *nixeval.Evaluator {
	t.Helper()
	dir := t.TempDir()
	hive, err := os.ReadFile("hive.nix")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "hive.nix")
	for path, content := range map[string][]byte{file: hive, filepath.Join(dir, "test.json"): test} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nixeval.New(nixeval.Options{Source: nixeval.Source{File: file, Dir: dir}})
}

func instantiate(t *testing.T, e *nixeval.Evaluator, units []string) map[string]nixeval.Closure {
	t.Helper()
	closures, err := e.Instantiate(t.Context(), units, nil)
	var failed *nixeval.EvalError
	if errors.As(err, &failed) {
		for unit, reason := range failed.Units {
			t.Errorf("%s: %v", unit, reason)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return closures
}

// checkHive evaluates a hive of a check with nixbench, as nixbench does in the virtual machine.
func checkHive(t *testing.T, name, text string) {
	t.Helper()
	e := newEvaluator(t, []byte(text))
	var want struct {
		Systems map[string]string `json:"systems"`
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	surveyed, err := e.Survey(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var units []string
	for _, u := range surveyed.Units {
		if reason := surveyed.Broken[u.Name]; reason != nil {
			t.Errorf("%s: %s: %v", name, u.Name, reason)
		}
		units = append(units, u.Name)
	}
	closures := instantiate(t, e, units)
	got := map[string]string{}
	for unit, c := range closures {
		got[unit] = c.Out
	}
	if !maps.Equal(got, want.Systems) {
		t.Errorf("%s: nixbench evaluates %v, want %v", name, got, want.Systems)
	}
}

// nixbench builds nothing for a system that is an existing store path, as in the hives of the checks. The mini NixOS replaces
// nixpkgs.
func TestPrebuiltSystem(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig+"\nmax-jobs = 0\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "system"), []byte(dir), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "nix-store", "--add", filepath.Join(dir, "system")).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSpace(string(out))
	test, err := json.Marshal(map[string]any{
		"nixpkgs": fixture.Nixpkgs(t), "system": "x86_64-linux",
		"systems": map[string]string{"web": path}, "nodes": map[string]any{"web": []string{}}, "hive": map[string]any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := newEvaluator(t, test)
	closures := instantiate(t, e, []string{"web"})
	if got := closures["web"].Out; got != path {
		t.Errorf("evaluated %s, want %s", got, path)
	}
	if built, err := e.Build(t.Context(), closures, ""); err != nil || !slices.Equal(built, []string{"web"}) {
		t.Errorf("built %v, %v", built, err)
	}
	if err := e.Keep(t.Context(), map[string]string{filepath.Join(dir, "root"): path}); err != nil {
		t.Error(err)
	}
}

// kubernetes-ca.hash is the hash of the key of kubernetes-ca.crt, in the form that kubeadm uses.
func TestAuthority(t *testing.T) {
	pair, err := tls.LoadX509KeyPair("kubernetes-ca.crt", "kubernetes-ca.key")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&pair.PrivateKey.(*ecdsa.PrivateKey).PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	got, err := os.ReadFile("kubernetes-ca.hash")
	if want := "sha256:" + hex.EncodeToString(sum[:]) + "\n"; err != nil || string(got) != want {
		t.Errorf("kubernetes-ca.hash: %v, got %q, want %q", err, got, want)
	}
}
