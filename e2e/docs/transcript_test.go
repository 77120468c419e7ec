package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/transcript"
)

// The commands of README.md and of the tutorial that need no machines. TestTutorial runs the rest of
// the tutorial.
func TestTranscripts(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	nixpkgs := fixture.Nixpkgs(t)
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/nixbench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	withoutMachines := regexp.MustCompile(`^(mkdir|cd|nixbench (init|eval|build|doctor))\b`)
	for file, want := range map[string]int{"README.md": 2, "docs/tutorial.md": 5} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := &transcript.Shell{TB: t, Dir: t.TempDir(), Env: append(os.Environ(), "HOME="+home, "NIX_CONFIG="+fixture.NixConfig,
				"NIX_PATH=nixpkgs="+nixpkgs, "PATH="+bin+":"+os.Getenv("PATH"))}
			done := 0
			for _, step := range transcript.Read(t, filepath.Join("../..", file)) {
				if !withoutMachines.MatchString(step.Command) {
					continue
				}
				done++
				if strings.Contains(step.Command, "doctor") {
					if _, err := os.Stat("/run/libvirt"); err == nil {
						t.Logf("%s is for a computer without libvirt", step.Where)
						continue
					}
					step.Output = oldNix(t, step.Output)
				}
				s.Do(step)
			}
			if done < want {
				t.Errorf("the document has only %d commands, want at least %d", done, want)
			}
		})
	}
}

// oldNix returns the output of doctor in the document, changed for this machine's Nix if that is older than 2.18.
func oldNix(t *testing.T, lines []string) []string {
	out, err := exec.Command("nix-instantiate", "--eval", "--expr", `builtins.compareVersions builtins.nixVersion "2.18" < 0`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(out)) == "false" {
		return lines
	}
	lines = append(slices.Clone(lines), "nix: install Nix 2.18 or later, see https://nixos.org/download")
	for i, line := range lines {
		if name, ok := strings.CutPrefix(line, "ok       nix      "); ok {
			lines[i] = "warning  nix      " + name + " is older than the oldest version that nixbench supports"
		}
	}
	return lines
}
