package deployments

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxPrograms is the number of programs that a change of one line may start on a node. It contains 35 programs that are
// not nixbench's: 6 of two logins, 13 that systemd starts, and 16 of two calls of the stand-in for switch-to-configuration.
const maxPrograms = 60

// A change starts as many programs on a node with 500 generations as on a node with 5.
func TestGenerations(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
	started := map[int]float64{}
	for _, generations := range []int{5, 500} {
		file := filepath.Join(t.TempDir(), "figures.json")
		var out, progress strings.Builder
		err := Run(t.Context(), Options{Machines: 1, Repeat: 3, Size: 5, Generations: generations, Scenarios: "line", JSON: file, Dir: t.TempDir(), Out: &out, Progress: &progress})
		t.Logf("%s\n%s", out.String(), progress.String())
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		started[generations] = r.Scenarios[0].Median["new"][programs]
		if p := started[generations]; p <= 0 || p > maxPrograms {
			t.Errorf("with %d generations a change starts %v programs, want at most %d", generations, p, maxPrograms)
		}
	}
	if d := started[500] - started[5]; d < -2 || d > 2 {
		t.Errorf("a change starts %v programs with 5 generations, and %v with 500", started[5], started[500])
	}
}

// Some scenarios run on a lab, with nixbench and with a command line in turn. The figures are plausible.
func TestRun(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
	selected := []string{"noop", "line", "keys-changed", "copy-one", "copy-all"}
	dir := t.TempDir()
	file := filepath.Join(dir, "figures.json")
	var out, progress strings.Builder
	// The command line is the nixbench that Run builds.
	err := Run(t.Context(), Options{
		Machines: 2, Repeat: 1, Size: 5, Generations: 3, Scenarios: strings.Join(selected, ","), JSON: file, Dir: dir, Out: &out, Progress: &progress,
		AgainstCommand: `cd "$HIVE" && ../nixbench apply "$GOAL" --on "$ON"`,
	})
	t.Logf("%s\n%s", out.String(), progress.String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != len(selected) {
		t.Fatalf("%d scenarios, want %d", len(r.Scenarios), len(selected))
	}
	for _, s := range r.Scenarios {
		for label, f := range s.Median {
			for _, m := range []metric{wall, nodeCPU, operatorCPU, programs, processes, operatorExecs, operatorRead} {
				if f[m] <= 0 {
					t.Errorf("%s: %s: %s is %v", s.Name, label, m, f[m])
				}
			}
			if f[logins] < 1 || f[logins] > 3 {
				t.Errorf("%s: %s: %v logins on a node, want 1 to 3", s.Name, label, f[logins])
			}
		}
		if f := s.Median["new"]; strings.HasPrefix(s.Name, "copy-") && (f[storeOpens] < 1 || f[operatorRead] < 5e6) {
			t.Errorf("%s: %v opens of the large file, %v bytes read", s.Name, f[storeOpens], f[operatorRead])
		}
	}
	for _, s := range r.Scenarios {
		// nixbench opens a file once for each part that it reads. It reads a part once for all nodes.
		if f := s.Median["new"]; s.Name == "copy-all" && f[storeOpens] > 6 {
			t.Errorf("%v opens of a file of five parts, which two nodes lack", f[storeOpens])
		}
	}
	if r := r.Scenarios[0].Median["new"][programs] / r.Scenarios[1].Median["new"][programs]; r > 0.8 {
		t.Errorf("a no-op starts %.2f times as many programs as a change", r)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "lab", "*")); len(left) > 0 {
		t.Errorf("the lab has left %v", left)
	}
}
