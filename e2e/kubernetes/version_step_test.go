package kubernetes

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCheckVersionStep checks which versions of Kubernetes a node refuses.
func TestCheckVersionStep(t *testing.T) {
	script, err := os.ReadFile("../../modules/kubernetes/scripts/library/upgrade.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, refused string }{
		{"1.34.3", "1.34.4", ""},
		{"1.34.3", "1.35.0", ""},
		{"1.34.9", "1.34.10", ""},
		{"1.35.3", "1.36.2", ""},
		{"1.35.0-rc.1", "1.35.0", ""},
		{"1.34.3", "1.36.0", "Set nixbench.kubernetes.package to release 1.35 first, and go on from there to 1.36.0."},
		{"1.36.2", "1.35.3", "cannot go back to 1.35.3. Set nixbench.kubernetes.package to release 1.36.2 or later."},
		{"1.34.3", "1.40.0", "Set nixbench.kubernetes.package to release 1.35 first, and go on from there to 1.40.0."},
		{"1.34.10", "1.34.9", "cannot go back to 1.34.9."},
		{"1.35.0", "1.34.9", "cannot go back to 1.34.9. Set nixbench.kubernetes.package to release 1.35.0 or later."},
		{"1.35.0", "1.35.0-rc.1", "cannot go back to 1.35.0-rc.1."},
	} {
		cmd := exec.Command("bash", "-uc", `set_output() { printf '%s\n' "$1" >"$work/output"; }
`+string(script)+`
check_version_step "$FROM"; status=$?; cat "$work/output" 2>/dev/null; exit "$status"`)
		cmd.Env = append(os.Environ(), "work="+t.TempDir(), "FROM="+c.from, "VERSION="+c.to)
		out, err := cmd.CombinedOutput()
		switch {
		case c.refused == "" && (err != nil || len(out) > 0):
			t.Errorf("from %s to %s: %v\n%s", c.from, c.to, err, out)
		case c.refused != "" && (err == nil || !strings.Contains(string(out), c.refused) || !strings.Contains(string(out), "runs Kubernetes "+c.from)):
			t.Errorf("from %s to %s: %v\n%s", c.from, c.to, err, out)
		}
	}
}
