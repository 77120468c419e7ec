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

// What documents show of a shell that needs no machines: the beginning, for the rest of the
// tutorial see TestTutorial.
func TestTranscripts(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	nixpkgs := fixture.Nixpkgs(t)
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/nixbench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	alone := regexp.MustCompile(`^(mkdir|cd|nixbench (init|eval|build|doctor))\b`)
	for file, want := range map[string]int{"README.md": 2, "docs/tutorial.md": 5} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := &transcript.Shell{TB: t, Dir: t.TempDir(), Env: append(os.Environ(), "HOME="+home, "NIX_CONFIG="+fixture.NixConfig,
				"NIX_PATH=nixpkgs="+nixpkgs, "PATH="+bin+":"+os.Getenv("PATH"))}
			done := 0
			for _, step := range transcript.Read(t, filepath.Join("../..", file)) {
				if !alone.MatchString(step.Command) {
					continue
				}
				done++
				if strings.Contains(step.Command, "doctor") {
					if _, err := os.Stat("/run/libvirt"); err == nil {
						t.Logf("%s is about a computer without libvirt", step.Where)
						continue
					}
					step.Output = oldNix(t, step.Output)
				}
				s.Do(step)
			}
			if done < want {
				t.Errorf("only %d commands", done)
			}
		})
	}
}

// oldNix is what doctor says where Nix is older than the document's.
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
