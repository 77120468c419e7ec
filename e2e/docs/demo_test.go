package docs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// demo is a clone of the repository for a demo, so that a test may edit its hive.
type demo struct {
	*testing.T
	top, tree string
	env       []string
	printed   string // by demo/up
}

// newDemo clones the repository, as a reader does, and adds the changes that are not committed yet. It removes the demo when the test ends.
func newDemo(t *testing.T, name string) *demo {
	t.Helper()
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{T: t, top: top, tree: filepath.Join(t.TempDir(), "nixbench")}
	const clone = `set -e
git clone --quiet . "$1"
git diff --binary HEAD > "$1.diff"
[ ! -s "$1.diff" ] || git -C "$1" apply "$1.diff"`
	cmd := exec.Command("bash", "-c", clone, "clone", d.tree)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clone %s: %v\n%s", top, err, out)
	}
	// The same folder for each run, so that a run removes the lab of a run that was killed.
	state := fmt.Sprintf("/tmp/nixbench-lab/%s-%.6x", name, sha256.Sum256([]byte(top)))
	d.env = append(os.Environ(), "NIXBENCH_LAB="+state, "NO_COLOR=1")
	t.Cleanup(func() { d.run(2*time.Minute, "down") })
	return d
}

// run runs a program of the demo, which must succeed, and returns what it prints.
func (d *demo) run(limit time.Duration, program string, args ...string) string {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(d.tree, "demo", program), args...)
	cmd.Env, cmd.WaitDelay = d.env, 5*time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		d.Fatalf("demo/%s %s: %v\n%s", program, strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// demo/up --scheduler slurm, and the commands that it prints.
func TestDemoWithSLURM(t *testing.T) {
	d := newDemo(t, "slurm-demo")
	d.printed = d.run(20*time.Minute, "up", "--scheduler", "slurm")
	t.Log(d.printed)
	if !strings.Contains(d.printed, "3 nodes in 2 units, scheduler slurm") {
		t.Error("demo/up has not used the scheduler slurm")
	}
	var tried []string
	for line := range strings.Lines(d.printed) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
		args, ok := strings.CutPrefix(command, "demo/nixbench ")
		if !ok {
			continue
		}
		tried = append(tried, command)
		out := d.run(5*time.Minute, "nixbench", strings.Fields(args)...)
		if strings.Contains(args, "srun") && (!strings.Contains(out, "node-1\n") || !strings.Contains(out, "node-2\n")) {
			t.Errorf("%s: %s", command, out)
		}
	}
	if len(tried) < 6 {
		t.Errorf("demo/up prints only these commands: %q", tried)
	}
}

// demo/up refuses other arguments before it changes anything.
func TestDemoArguments(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no scheduler "pbs"; use kubernetes or slurm`: {"--scheduler", "pbs"},
		"--scheduler needs a name; use kubernetes or slurm":    {"--scheduler"},
		"unknown argument slurm":                               {"slurm"},
	} {
		out, err := exec.Command("../../demo/up", args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("demo/up %q: %v\n%s", args, err, out)
		}
	}
}
