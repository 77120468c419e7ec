package nixeval

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// Facts are read again if the file has changed, as it does with every scaling.
func TestFactsChange(t *testing.T) {
	mini := fixture.Nixpkgs(t)
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	hive, facts := filepath.Join(dir, "hive.nix"), filepath.Join(dir, "runtime.json")
	if err := os.WriteFile(hive, []byte(`{
  meta.nixpkgs = import `+mini+` { system = "x86_64-linux"; };
  roles.w.modules = [ ({ runtime, ... }: { environment.etc.x.text = runtime.cluster; }) ];
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		want := fmt.Sprintf("cluster-%d-%d", i, time.Now().UnixNano())
		if err := os.WriteFile(facts, []byte(`{"version":1,"cluster":"`+want+`","nodes":{},"roles":{}}`), 0o644); err != nil {
			t.Fatal(err)
		}
		e := New(Options{Source: Source{File: hive, Dir: dir}, Facts: facts})
		got, err := e.Introspect(t.Context(), Expression{Text: `{ nodes, ... }: nodes.w-1.config.environment.etc.x.text`})
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(got)) != `"`+want+`"` {
			t.Errorf("got %s, want %q", got, want)
		}
	}
}
