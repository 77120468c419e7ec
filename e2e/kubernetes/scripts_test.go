package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// iptablesRules is the output of `iptables -S`. The rule in the last line contains shell syntax.
const iptablesRules = `-P FORWARD ACCEPT
-N KUBE-FORWARD
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-A OUTPUT -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-A OUTPUT -d 10.97.0.0/16 -m comment --comment nixbench-services-of-others -j DROP
-A OUTPUT -d 10.0.0.1/32 -p tcp -m tcp --dport 6443 -m comment --comment "nixbench: until the API is back" -j DNAT --to-destination 10.0.0.2:6443
-A OUTPUT -m comment --comment nixbench-services -m comment --comment "$(touch evaluated)\"; touch evaluated" -j $(touch${IFS}evaluated)
`

// TestDeleteRules checks which rules delete_rules deletes, and that it evaluates nothing of them.
func TestDeleteRules(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("rules", iptablesRules)
	write("iptables", `#!/bin/bash
case "$*" in *-S*) exec cat rules ;; esac
printf '[%s]' "$@"
echo
`)
	library, err := filepath.Abs("../../modules/kubernetes/scripts/rules.sh")
	if err != nil {
		t.Fatal(err)
	}
	run := func(table, comment string) string {
		t.Helper()
		cmd := exec.Command("bash", "-uc", `. "$1" && delete_rules "$2" "$3"`, "bash", library, table, comment)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("delete_rules: %v\n%s", err, out)
		}
		return string(out)
	}

	got := strings.Split(run("filter", "nixbench-services"), "\n")
	want := []string{
		"[-w][-t][filter][-D][FORWARD][-d][10.96.0.0/16][-m][comment][--comment][nixbench-services][-j][DROP]",
		"[-w][-t][filter][-D][OUTPUT][-d][10.96.0.0/16][-m][comment][--comment][nixbench-services][-j][DROP]",
	}
	if len(got) != 4 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("deleted:\n%s\nwant\n%s\nand the rule with shell syntax", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if out := run("nat", "nixbench: until the API is back"); out !=
		"[-w][-t][nat][-D][OUTPUT][-d][10.0.0.1/32][-p][tcp][-m][tcp][--dport][6443][-m][comment][--comment][nixbench: until the API is back][-j][DNAT][--to-destination][10.0.0.2:6443]\n" {
		t.Errorf("deleted: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "evaluated")); err == nil {
		t.Error("a rule was evaluated by the shell")
	}
}
