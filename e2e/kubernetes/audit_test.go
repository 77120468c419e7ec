package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// place_audit_policy copies the system's audit policy to the path that the API server reads, with
// mode 0600. Without an audit log it writes no file.
func TestPlaceAuditPolicy(t *testing.T) {
	fixture.Require(t, "bash")
	script, err := os.ReadFile("../../modules/kubernetes/scripts/library/pki.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	policy, placed := filepath.Join(dir, "policy"), filepath.Join(dir, "kubernetes/audit-policy.json")
	place := func(source string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-uc", strings.ReplaceAll(string(script), "/etc/kubernetes", filepath.Dir(placed))+"\ninstall_audit_policy")
		cmd.Env = append(os.Environ(), "AUDIT_POLICY="+source)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	place("")
	if _, err := os.Stat(placed); !os.IsNotExist(err) {
		t.Errorf("without an audit log: %v, want no file", err)
	}
	for _, text := range []string{"one", "one", "another"} {
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		place(policy)
		got, err := os.ReadFile(placed)
		info, _ := os.Stat(placed)
		if err != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("the policy %q is placed as %q, %v, %v", text, got, info.Mode(), err)
		}
	}

	// Both scripts run kubeadm, which writes manifests that refer to the policy.
	for _, caller := range []string{"before-switch", "bootstrap"} {
		text, err := os.ReadFile("../../modules/kubernetes/scripts/" + caller + ".sh")
		if err != nil || !strings.Contains(string(text), "install_ca_bundle && install_audit_policy") {
			t.Errorf("%s.sh does not place the audit policy: %v", caller, err)
		}
	}
}
