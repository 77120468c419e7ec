package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/transcript"
)

// The tutorial from its third part on, with the demo, which the tutorial names for computers without
// KVM. The demo runs in a copy of the tree, because the tutorial edits the hive. It also runs the
// README's first commands.
func TestTutorial(t *testing.T) {
	bin := t.TempDir()
	d := startDemo(t, "tutorial", bin)

	parts, err := exec.Command(filepath.Join(d.top, "e2e/kube/build")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"nixbench": filepath.Join(d.tree, "demo/nixbench"), "kubectl": filepath.Join(strings.TrimSpace(string(parts)), "root/usr/bin/kubectl")} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	shell := &transcript.Shell{TB: t, Dir: d.tree, Env: d.env, Command: func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(d.tree, "e2e/lab/lab"), append([]string{"run", name}, args...)...)
	}}
	begun, done := false, 0
	for _, step := range transcript.Read(t, filepath.Join(d.top, "docs/tutorial.md")) {
		begun = begun || strings.HasPrefix(step.Title, "3.")
		if !begun {
			continue
		}
		if step.Nix != "" {
			edit(t, filepath.Join(d.tree, "hive.nix"), step.Nix)
			continue
		}
		if step.Command == "nixbench destroy" || step.Command == "nixbench rollback" { // without a terminal, --yes replaces the answer
			step.Command += " --yes"
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
	nix = strings.ReplaceAll(nix, "pkgs.htop", "pkgs.hello") // the fixture has no htop
	if err := os.WriteFile(hive, []byte(strings.Replace(string(text), before, nix, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
