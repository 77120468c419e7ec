package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/transcript"
)

// The tutorial as a reader types it after demo/up, which the tutorial names for computers without KVM: the first block and the
// parts from the third on. The demo runs in a copy of the tree, because the tutorial edits the hive. It also runs
// the README's first commands.
func TestTutorial(t *testing.T) {
	d := startDemo(t, "tutorial")
	shell := &transcript.Shell{TB: t, Dir: d.tree, Env: d.env}
	done := 0
	for _, step := range transcript.Read(t, filepath.Join(d.top, "docs/tutorial.md")) {
		if step.Command == "demo/up" {
			continue // startDemo has run it
		}
		if step.Title != "Tutorial" && !(step.Title >= "3." && step.Title < "9") {
			continue
		}
		if step.Nix != "" {
			edit(t, filepath.Join(d.tree, "hive.nix"), step.Nix)
			continue
		}
		began := time.Now()
		shell.Do(step)
		done++
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), step.Command)
	}

	// The README begins with an empty hypervisor, which the tutorial has left.
	for _, step := range transcript.Read(t, filepath.Join(d.top, "README.md")) {
		switch step.Command {
		case "nix run .#nixbench -- plan":
			step.Command = "nixbench plan"
			shell.Do(step)
			done++
		case "nix run .#deploy":
			if missing := transcript.Missing(step, d.printed); len(missing) > 0 {
				t.Errorf("%s: apply did not print %q", step.Where, missing)
			}
			done++
		}
	}
	if done < 18 {
		t.Errorf("the documents have only %d commands, want at least 18", done)
	}
}

// edit replaces the workers' modules in the hive by those of the tutorial.
func edit(t *testing.T, hive, nix string) {
	t.Helper()
	text, err := os.ReadFile(hive)
	if err != nil {
		t.Fatal(err)
	}
	const before = `modules = [ (modules + "/kubernetes/worker.nix") ];`
	if !strings.Contains(string(text), before) {
		t.Fatalf("hive.nix no longer has %s", before)
	}
	if err := os.WriteFile(hive, []byte(strings.Replace(string(text), before, nix, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
