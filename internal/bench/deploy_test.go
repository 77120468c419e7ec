package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// maxPrograms is the number of programs that a change of one line may start on a node. It contains 35 programs that are
// not nixbench's: 6 of two logins, 13 that systemd starts, and 16 of two calls of the stand-in for switch-to-configuration.
const maxPrograms = 60

// Each scenario runs on a lab, some with a second tool. A change starts as many programs on a node with 500 generations as with 5.
func TestDeploy(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("NIXBENCH_E2E=1 is not set; end-to-end tests need root and Debian packages (see e2e/lab/README.md)")
	}
	program := filepath.Join(t.TempDir(), "nixbench")
	if err := fixture.BuildProgram(program); err != nil {
		t.Fatal(err)
	}
	started := map[string]float64{}
	for _, generations := range []string{"5", "500"} {
		args := []string{"-machines", "2", "-repeat", "1", "-size", "5", "-generations", generations, "-program", program}
		if generations == "5" {
			args = append(args, "-against-command", `cd "$HIVE" && case $GOAL in build) ;; *) GOAL="apply $GOAL" ;; esac && exec `+program+` $GOAL --on "$ON"`)
		} else {
			args = append(args, "-scenario", "line")
		}
		results, err := run(t.Context(), args)
		if err != nil {
			t.Fatal(err)
		}
		for name, tools := range results {
			for label, runs := range tools {
				if f := runs[0]; f[wall] <= 0 || f[nodeCPU] <= 0 && name != "noop" || f[hereCPU] <= 0 || f[hereMemory] <= 0 || f[programs] <= 0 {
					t.Errorf("%s: %s: %v", name, label, f)
				}
			}
		}
		started[generations] = results["line"]["new"][0][programs]
		if p := started[generations]; p > maxPrograms {
			t.Errorf("with %s generations a change starts %v programs, want at most %d", generations, p, maxPrograms)
		}
	}
	if d := started["500"] - started["5"]; d < -2 || d > 2 {
		t.Errorf("a change starts %v programs with 5 generations, and %v with 500", started["5"], started["500"])
	}
}
