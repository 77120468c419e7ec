package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nixbench/nixbench/e2e/transcript"
)

// offline are the commands of README.md that cannot run here as printed, because they need nixpkgs from the network, and what runs
// instead with the demo's nixpkgs. The test types all other commands exactly as they are printed; e2e/flake tests `nix run`.
var offline = map[string]string{
	"nix run .#nixbench -- plan": "nixbench plan",
	"nix run .#deploy":           "", // the apply of demo/up prints the same
}

// The tutorial as a reader types it, in a fresh clone: the first block, which starts the demo for computers without KVM, and the parts from
// the third on. TestTranscripts runs the first two. Then it runs the README's first commands.
func TestTutorial(t *testing.T) {
	d := newDemo(t, "tutorial")
	shell := &transcript.Shell{TB: t, Dir: d.tree, Env: d.env}
	done := 0
	for _, step := range transcript.Read(t, filepath.Join(d.top, "docs/tutorial.md")) {
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
		switch command, _, _ := strings.Cut(step.Command, "  "); command {
		case "demo/up":
			d.printed = shell.Printed
			t.Log(d.printed)
		case "nixbench status":
			checkStatusOfKubernetes(t, shell)
		}
	}

	// The README begins with an empty hypervisor, which the tutorial has left.
	for _, step := range transcript.Read(t, filepath.Join(d.top, "README.md")) {
		instead, ok := offline[step.Command]
		switch {
		case !ok:
			continue
		case instead == "":
			if missing := transcript.Missing(step, d.printed); len(missing) > 0 {
				t.Errorf("%s: apply did not print %q", step.Where, missing)
			}
		default:
			step.Command = instead
			shell.Do(step)
		}
		done++
	}
	if done < 22 {
		t.Errorf("the documents have only %d commands, want at least 22", done)
	}
}

// checkStatusOfKubernetes checks the columns of the cluster's members in the status that the shell has printed, and that status fits a
// terminal of 80 columns.
func checkStatusOfKubernetes(t *testing.T, shell *transcript.Shell) {
	t.Helper()
	for _, column := range []string{"MEMBER", "VERSION"} {
		if !strings.Contains(shell.Printed, column) {
			t.Errorf("status has no column %s:\n%s", column, shell.Printed)
		}
	}
	for _, node := range []string{"control-plane-1", "worker-1", "worker-2"} {
		if !regexp.MustCompile(`(?m)^` + node + ` .* Ready +1\.\d+\.\d+ `).MatchString(shell.Printed) {
			t.Errorf("%s is not Ready with a version:\n%s", node, shell.Printed)
		}
	}
	for _, command := range []string{"nixbench status", "nixbench status -o wide"} {
		shell.Do(transcript.Step{Where: "at 80 columns", Command: "script --quiet --return --command 'stty cols 80 rows 24; " + command + "' /dev/null < /dev/null"})
		rows := 0
		for line := range strings.Lines(strings.ReplaceAll(shell.Printed, "\r", "\n")) {
			line = strings.TrimRight(regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]").ReplaceAllString(line, ""), "\n")
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%s: a line has %d columns: %s", command, n, line)
			}
			if strings.HasPrefix(line, "worker-") && strings.Contains(line, "as deployed") {
				rows++
			}
		}
		if rows != 2 {
			t.Errorf("%s shows %d workers, want 2:\n%s", command, rows, shell.Printed)
		}
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
