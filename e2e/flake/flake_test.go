package flake

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// world is a copy of the flake's files, and a nixpkgs.
type world struct {
	*testing.T
	top, flake, nixpkgs, home string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, nixpkgs: fixture.Nixpkgs(t), flake: t.TempDir(), home: t.TempDir()}
	var err error
	if w.top, err = filepath.Abs("../.."); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"flake.nix", "flake.lock", "package.nix", "hive.nix", "modules", "templates", "go.mod", "go.sum"} {
		w.run(w.top, "cp", "-r", part, w.flake)
	}
	return w
}

func (w *world) env() []string {
	return append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+w.home, "PATH="+w.home+"/bin:"+os.Getenv("PATH"))
}

// try runs a command in a folder, and returns its output.
func (w *world) try(dir, name string, args ...string) (string, error) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = w.env()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) run(dir, name string, args ...string) string {
	w.Helper()
	out, err := w.try(dir, name, args...)
	if err != nil {
		w.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// with adds arguments that replace the flake's nixpkgs by the fixture.
func (w *world) with(args ...string) []string {
	return append(args, "--override-input", "nixpkgs", "path:"+w.nixpkgs, "--no-write-lock-file")
}

// buildProgram builds nixbench into the folder of PATH in which the package's stand-in looks for it.
func (w *world) buildProgram() {
	w.Helper()
	w.write(w.home, "bin/.keep", "")
	cmd := exec.Command("go", "build", "-o", filepath.Join(w.home, "bin/nixbench"), "./cmd/nixbench")
	cmd.Dir = w.top
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("go build: %v\n%s", err, out)
	}
}

func (w *world) write(dir, name, text string) {
	w.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

func TestVendorHash(t *testing.T) {
	fixture.Require(t, "nix", "go")
	script, err := filepath.Abs("../../scripts/vendor-hash")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(script, "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCheck(t *testing.T) {
	w := newWorld(t)
	out := w.run(w.flake, "nix", w.with("flake", "check", "--no-build", "path:"+w.flake)...)
	if strings.Contains(out, "error") {
		t.Error(out)
	}
	for _, output := range []string{
		"packages.x86_64-linux.default.name", "overlays.default", "devShells.x86_64-linux.default.name",
		"apps.x86_64-linux.default.program", "nixosModules.guest", "templates.default.path",
	} {
		_ = w.run(w.flake, "nix", w.with("eval", "path:"+w.flake+"#"+output, "--apply", "builtins.typeOf")...)
	}

	// With a nixpkgs whose Go is too old, the evaluation of the package fails with a message.
	out, err := w.try(w.flake, "nix", w.with("eval", "path:"+w.flake+"#overlays.default", "--apply",
		`o: (((import `+w.nixpkgs+` { }).extend o).extend (_: p: { go = p.go // { version = "1.24.3"; }; })).nixbench.name`, "--impure")...)
	if err == nil || !strings.Contains(out, "has Go 1.24.3") {
		t.Errorf("with an old Go: %v\n%s", err, out)
	}
}

// The app passes on its arguments and the exit code.
func TestDeploy(t *testing.T) {
	w := newWorld(t)
	w.write(w.home, "bin/nixbench", "#!/bin/sh\necho \"got: $*\"\nexit 9\n")
	if err := os.Chmod(filepath.Join(w.home, "bin/nixbench"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := w.try(w.flake, "nix", append(w.with("run", "path:"+w.flake+"#deploy"), "--", "--on", "@compute", "--yes")...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 || !strings.Contains(out, "got: apply --flake . --on @compute --yes\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _ = w.try(w.flake, "nix", append(w.with("run", "path:"+w.flake), "--", "plan")...)
	if !strings.Contains(out, "got: plan\n") {
		t.Error(out)
	}
}

// initTemplate returns a folder with an unchanged template, whose flake.lock redirects the inputs to
// folders of this machine.
func (w *world) initTemplate(name string) string {
	w.Helper()
	ours := fixture.Input{Name: "nixpkgs", From: "github:NixOS/nixpkgs/nixos-26.05", Folder: w.nixpkgs}
	fixture.Lock(w, w.flake, ours)
	dir := w.TempDir()
	w.run(dir, "nix", "flake", "init", "-t", "path:"+w.flake+"#"+name)
	fixture.Lock(w, dir,
		fixture.Input{Name: "nixpkgs", From: "github:NixOS/nixpkgs/nixos-26.05", Folder: w.nixpkgs},
		fixture.Input{Name: "nixbench", From: "github:nixbench/nixbench", Folder: w.flake, Inputs: []fixture.Input{ours}})
	return dir
}

func TestTemplates(t *testing.T) {
	w := newWorld(t)
	w.buildProgram()
	for _, c := range []struct{ template, node string }{
		{"kubernetes", "worker-2"}, {"schedulers", "node-2"}, {"existing-machines", "web"}, {"from-colmena", "host-a"},
	} {
		dir := w.initTemplate(c.template)
		if out := w.run(dir, filepath.Join(w.home, "bin/nixbench"), "eval"); !strings.Contains(out, "\n"+c.node+" ") {
			t.Errorf("%s: no %s in\n%s", c.template, c.node, out)
		}
		if c.template != "kubernetes" {
			continue
		}
		w.run(dir, "nix", "flake", "check", "--no-build")
		out := w.run(dir, "nix", "run", ".#deploy", "--", "build")
		if strings.Count(out, "nixos-system-worker-") != 2 {
			t.Errorf("deploy built\n%s", out)
		}
	}

	// The reference hive is the template with other names.
	reference, err := os.ReadFile(filepath.Join(w.top, "hive.nix"))
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(filepath.Join(w.top, "templates/kubernetes/hive.nix"))
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer(`meta.name = "cluster"`, `meta.name = "reference"`, `network.name = "cluster"`, `network.name = "scheduler_benchmark_net"`).Replace(string(template))
	if string(reference) != renamed {
		t.Error("hive.nix and templates/kubernetes/hive.nix differ not only in names; copy the correct lines over the others")
	}

	// All say that git must know the files.
	for _, name := range []string{"kubernetes", "schedulers", "existing-machines", "from-colmena"} {
		if text := w.run(w.flake, "nix", w.with("eval", "--raw", "path:"+w.flake+"#templates."+name+".welcomeText")...); !strings.Contains(text, "`git add .`") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// lib.hive accepts all forms of a hive that Colmena accepts.
func TestHive(t *testing.T) {
	w := newWorld(t)
	for what, c := range map[string]struct{ expression, want string }{
		"a set":                        {`hive = { meta.nixpkgs = throw "not this one"; a = { }; }`, `["a","meta"]`},
		"the old name of meta":         {`hive = { network.nixpkgs = throw "not this one"; a = { }; }`, `["a","meta"]`},
		"meta is a module":             {`hive = { meta = { lib, ... }: { name = "m"; nixpkgs = throw "not this one"; }; }`, `["meta"]`},
		"a function without arguments": {`hive = { }: { a = { }; }`, `["a","meta"]`},
		"a function of all arguments":  {`hive = { nixpkgs, modules }: { a = import (modules + "/guest.nix"); meta.nixpkgs = nixpkgs; }`, `["a","meta"]`},
	} {
		apply := `lib: let h = lib.hive { ` + c.expression + `; };
      module = builtins.head h.meta.imports;
    in assert h.meta ? imports -> module { inherit lib; } == { name = "m"; };
      assert h.meta.nixpkgs.hello.name == "hello-2.12"; builtins.attrNames h`
		if out := w.run(w.flake, "nix", w.with("eval", "--json", "path:"+w.flake+"#lib", "--apply", apply)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", what, out)
		}
	}
}
