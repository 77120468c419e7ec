package nixeval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// A role's image is evaluated without facts, also if each node has its own closure. An image that
// is a derivation is built.
func TestImages(t *testing.T) {
	mini := fixture.Nixpkgs(t)
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	hive := filepath.Join(dir, "hive.nix")
	if err := os.WriteFile(hive, []byte(`builtins.trace "each evaluation prints this" {
  meta.nixpkgs = import `+mini+` { system = "x86_64-linux"; };
  roles.w = { count = 0; perNode = true; modules = [ ({ runtime, ... }: { environment.etc.x.text = if runtime == null then "generic" else throw "it has facts"; }) ]; };
  roles.given.image = derivation { name = "an-image"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo `+filepath.Base(dir)+t.Name()+` > $out" ]; };
  roles.other.modules = [ { image.modules.qemu = throw "no such luck"; } ];
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	facts := filepath.Join(dir, "facts.json")
	if err := os.WriteFile(facts, []byte(`{"version":1,"cluster":"hive","nodes":{},"roles":{}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	printed := 0
	send := func(ev event.Event) {
		if ev.Kind == event.Message && ev.Text == "each evaluation prints this" {
			printed++
		}
	}
	e := New(Options{Source: Source{File: hive, Dir: dir}, Facts: facts, Send: send})
	g := e.WithoutFacts()
	images, err := g.Images(t.Context(), "vm", []string{"w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Build(t.Context(), images, ""); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(images["w"].Out + "/*.qcow2")
	if len(found) != 1 {
		t.Errorf("no image in %s", images["w"].Out)
	}
	if _, err := g.Images(t.Context(), "vm", []string{"other"}); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v", err)
	}
	h, err := e.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if printed != 1 {
		t.Errorf("a message of three evaluations was sent %d times", printed)
	}
	given := *h.Roles["given"].Image
	if err := g.RealiseImage(t.Context(), "given"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(given); err != nil {
		t.Error(err)
	}
}
