package nixeval

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// cachedFlake is a flake with one node whose system depends on a file, an input, the facts and --set.
type cachedFlake struct {
	*testing.T
	dir, cache string
	options    Options
	evaluated  atomic.Int32 // how many processes have evaluated the hive
	during     func()       // called after each evaluation
}

func newCachedFlake(t *testing.T) *cachedFlake {
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	t.Setenv("HOME", t.TempDir())
	top := t.TempDir()
	f := &cachedFlake{T: t, dir: filepath.Join(top, "flake"), cache: filepath.Join(top, "cache"), during: func() {}}
	f.write("input/flake.nix", `{ outputs = _: { text = "one"; }; }`)
	f.write("flake.nix", `{
  inputs.mini.url = "path:`+fixture.Nixpkgs(t)+`";
  inputs.other.url = "path:`+filepath.Join(top, "flake", "input")+`";
  outputs = { mini, other, ... }: {
    nixbenchHive = {
      meta.nixpkgs = import mini { system = "x86_64-linux"; };
      roles.w = { count = 2; modules = [ ({ runtime, ... }: { environment.etc.facts.text = builtins.toJSON runtime; }) ]; };
      a.environment.etc.x.text = builtins.readFile ./x + other.text;
      a.deployment.keys.k.keyFile = ./x;
    };
  };
}`)
	f.write("x", "one")
	if out, err := exec.Command("nix", "flake", "lock", "path:"+f.dir).CombinedOutput(); err != nil { // an evaluation that creates the lock changes the flake
		t.Fatalf("%v\n%s", err, out)
	}
	source, err := ParseFlakeSource(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.options = Options{Source: source, CacheDir: f.cache, Run: func(ctx context.Context, c Command) ([]byte, error) {
		out, err := Exec(ctx, c)
		if c.Argv[1] == "eval" {
			f.evaluated.Add(1)
			f.during()
		}
		return out, err
	}}
	return f
}

func (f *cachedFlake) write(name, text string) {
	f.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.Fatal(err)
	}
	write(f.T, file, text)
	past := time.Unix(1e9, 0)
	if err := os.Chtimes(file, past, past); err != nil { // Nix knows a flake also by the time of its last change
		f.Fatal(err)
	}
}

// run evaluates the hive as a run of nixbench does, and returns the results and how many processes have evaluated it.
func (f *cachedFlake) run(o Options) (results []any, processes int) {
	f.Helper()
	before := f.evaluated.Load()
	e := New(o)
	hive, err := e.Survey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	closures, err := e.Instantiate(f.Context(), []string{"a", "w"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	return []any{hive, closures}, int(f.evaluated.Load() - before)
}

// expect checks that the results are those of an evaluation without the cache, and whether the hive was evaluated.
func (f *cachedFlake) expect(what string, evaluated bool) {
	f.Helper()
	got, processes := f.run(f.options)
	without := f.options
	without.CacheDir = ""
	if want, _ := f.run(without); !reflect.DeepEqual(got, want) {
		f.Errorf("%s: got %+v, want %+v", what, got, want)
	}
	if (processes > 0) != evaluated {
		f.Errorf("%s: %d processes have evaluated the hive", what, processes)
	}
}

// A flake is evaluated again after a change of anything that the evaluation reads, and only then.
func TestCacheOfEvaluations(t *testing.T) {
	f := newCachedFlake(t)
	f.expect("first", true)
	f.expect("again", false)
	facts := filepath.Join(t.TempDir(), "runtime.json")
	for _, change := range []struct {
		what string
		make func()
	}{
		{"file", func() { f.write("x", "two") }},
		{"input", func() {
			f.write("input/flake.nix", `{ outputs = _: { text = "two"; }; }`)
			if out, err := exec.Command("nix", "flake", "lock", "--update-input", "other", f.dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}},
		{"first facts", func() {
			write(t, facts, `{"version":1,"cluster":"one","nodes":{},"roles":{}}`)
			f.options.Facts = facts
		}},
		{"other facts", func() { write(t, facts, `{"version":1,"cluster":"two","nodes":{},"roles":{}}`) }},
		{"--set", func() { f.options.Sets = []Set{{Path: []string{"roles", "w", "count"}, Raw: "3", IsJSON: true}} }},
		{"option of Nix", func() { f.options.NixOptions = [][2]string{{"max-call-depth", "9000"}} }},
		{"extra modules", func() { f.options.ExtraModules = []string{`_: _: [ { environment.etc.y.text = "y"; } ]`} }},
		{"other Nix", func() {
			nix, err := exec.LookPath("nix")
			if err != nil {
				t.Fatal(err)
			}
			bin := t.TempDir()
			write(t, filepath.Join(bin, "nix"), "#!/bin/sh\nexec "+nix+` "$@"`)
			if err := os.Chmod(filepath.Join(bin, "nix"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		}},
	} {
		change.make()
		f.expect("after a change: "+change.what, true)
	}
	f.expect("after all changes", false)
}

// A result is not kept if the flake was changed during the evaluation, because it is unknown which files Nix has read.
func TestCacheChangedDuringEvaluation(t *testing.T) {
	f := newCachedFlake(t)
	f.during = func() { f.write("x", "changed") }
	f.run(f.options)
	f.during = func() {}
	f.write("x", "one")
	f.expect("as before the change", true)
}

// A system whose derivation was deleted is evaluated again.
func TestCacheDeletedDerivation(t *testing.T) {
	f := newCachedFlake(t)
	f.write("x", t.TempDir()) // a derivation that no other test uses
	results, _ := f.run(f.options)
	for _, c := range results[1].(map[string]Closure) {
		if out, err := exec.Command("nix-store", "--delete", c.Drv).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	f.expect("after garbage collection", true)
}

// A run evaluates only the units that are not in the cache, and adds them.
func TestCacheOfSomeUnits(t *testing.T) {
	f := newCachedFlake(t)
	if _, err := New(f.options).Instantiate(t.Context(), []string{"w"}, nil); err != nil {
		t.Fatal(err)
	}
	f.expect("one unit is known", true)
	f.expect("both units are known", false)
}

// The texts of keys are not kept, and a hive that is not evaluated in pure mode is not kept at all.
func TestCacheWithoutSecrets(t *testing.T) {
	f := newCachedFlake(t)
	f.options.Impure = true
	f.run(f.options)
	if _, err := os.Stat(f.cache); !os.IsNotExist(err) {
		t.Errorf("a cache of an impure evaluation exists: %v", err)
	}
	f.options.Impure = false
	f.options.ExtraModules = []string{`_: _: [ { deployment.keys.secret.text = "word-of-the-secret"; } ]`}
	f.run(f.options)
	files := 0
	err := filepath.WalkDir(f.cache, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(file)
		if info, _ := entry.Info(); info.Mode().Perm() != 0o600 || strings.Contains(string(data), "word-of-the-secret") {
			t.Errorf("%s %s: %s", info.Mode(), file, data)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}
