package nixeval

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Nix 2.35 and later do not copy the source of a flake to the store. A key file in it is then read from the flake's folder, unless
// the file there is another one. Here the evaluation returns a store path that does not exist, as these versions do.
func TestKeyFileOfFlakeThatIsNotCopied(t *testing.T) {
	fixture.Require(t, "nix", "git")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	t.Setenv("HOME", t.TempDir())
	top := t.TempDir()
	dir := filepath.Join(top, "sub", "flake")
	outside := filepath.Join(top, "untracked")
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", top, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write(t, filepath.Join(dir, "flake.nix"), `{
  inputs.mini.url = "path:`+fixture.Nixpkgs(t)+`";
  outputs = { mini, ... }: {
    nixbenchHive = {
      meta.nixpkgs = import mini { system = "x86_64-linux"; };
      a.deployment.keys = {
        here.keyFile = ./secret;
        above.keyFile = ../secret;
        outside.keyFile = "`+outside+`";
        none.text = "x";
      };
    };
  };
}`)
	write(t, filepath.Join(dir, "secret"), "here\x00")
	write(t, filepath.Join(top, "sub", "secret"), "above")
	write(t, outside, "outside")
	git("init", "-q")
	git("add", "sub")
	git("commit", "-q", "-m", "x")
	source, err := ParseFlakeSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	inStore := regexp.MustCompile(`/nix/store/[0-9a-z]{32}-source/sub/`)
	const absent = "/nix/store/00000000000000000000000000000000-source/sub/"
	var changed func()
	survey := func(copied bool) map[string]string {
		t.Helper()
		hive, err := New(Options{Source: source, Run: func(ctx context.Context, c Command) ([]byte, error) {
			out, err := Exec(ctx, c)
			if !copied && inStore.Match(out) {
				out = inStore.ReplaceAll(out, []byte(absent))
				changed()
			}
			return out, err
		}}).Survey(t.Context())
		if err != nil || len(hive.Broken) > 0 {
			t.Fatalf("%v, %v", err, hive)
		}
		found := map[string]string{}
		for name, k := range hive.Unit("a").Deployment.Keys {
			if k.FileHash != "" {
				t.Errorf("%s: the hash is kept", name)
			}
			if k.KeyFile != nil {
				found[name] = *k.KeyFile
			}
		}
		return found
	}
	check := func(what string, got map[string]string, here, above string) {
		t.Helper()
		if got["here"] != here || got["above"] != above || got["outside"] != outside || len(got) != 3 {
			t.Errorf("%s: %q", what, got)
		}
	}
	changed = func() {}
	check("not copied", survey(false), filepath.Join(dir, "secret"), filepath.Join(top, "sub", "secret"))
	if got, err := os.ReadFile(survey(true)["here"]); err != nil || string(got) != "here\x00" { // whether this Nix copies the source or not
		t.Errorf("%q, %v", got, err)
	}
	changed = func() { write(t, filepath.Join(dir, "secret"), "another") }
	check("changed after the evaluation", survey(false), absent+"flake/secret", filepath.Join(top, "sub", "secret"))
}
