package handover

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// The name of the unit depends on the schedulers, and their services wait for it.
func TestUnits(t *testing.T) {
	var systems map[string]struct {
		Drv, Unit, Condition string
		Count                int
		Waiting              []string
	}
	nix := func(name string, args ...string) []byte {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
		var diag strings.Builder
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, diag.String())
		}
		return out
	}
	if err := json.Unmarshal(nix("nix-instantiate", "--eval", "--read-write-mode", "--strict", "--json", "--arg", "nixpkgs", fixture.Nixpkgs(t), "eval.nix"), &systems); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var drvs []string
	for name, s := range systems {
		got[name] = strings.Join(append([]string{s.Unit}, s.Waiting...), " ")
		if s.Condition != "" {
			got[name] += " if " + s.Condition + " is not empty"
		}
		if s.Count != 1 {
			t.Errorf("%s: %d units", name, s.Count)
		}
		drvs = append(drvs, s.Drv)
	}
	const noScheduler = "nixbench-handover if /nix/var/nix/gcroots/nixbench-handover is not empty"
	if diff := cmp.Diff(map[string]string{
		"none": noScheduler, "guest": noScheduler,
		"kubernetes": "nixbench-handover-kubernetes containerd kubelet nixbench-kubernetes nixbench-pod-network",
		"slurm":      "nixbench-handover-slurm slurmd",
		"accounting": "nixbench-handover-slurm slurmdbd",
		"flux":       "nixbench-handover-flux flux",
		"both":       "nixbench-handover-kubernetes-slurm containerd kubelet nixbench-kubernetes nixbench-pod-network slurmd",
	}, got); diff != "" {
		t.Error(diff)
	}

	// shellcheck has no complaint about the programs, and the commands of the hive come after those of the modules.
	paths := strings.Fields(string(nix("nix-store", append([]string{"--query", "--requisites"},
		strings.Fields(string(nix("nix-store", append([]string{"--realise"}, drvs...)...)))...)...)))
	var scripts []string
	for _, path := range paths {
		switch base := filepath.Base(path)[33:]; base {
		case "nixbench-handover", "nixbench-cleanup-slurm", "nixbench-cleanup-flux":
			scripts = append(scripts, path)
		case "nixbench-cleanup-kubernetes":
			scripts = append(scripts, path)
			text, _ := os.ReadFile(path)
			if strings.Index(string(text), "delete_firewall_rules") > strings.Index(string(text), "echo of the hive") {
				t.Errorf("the commands of the hive are not the last ones:\n%s", text)
			}
		}
	}
	if len(scripts) < 5 {
		t.Errorf("the systems have the scripts %q", scripts)
	}
	if problems := fixture.Shellcheck(t, "", append([]string{"--external-sources"}, scripts...)...); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}
}

// The record on the node has the schedulers that may have something running: it changes only after a cleanup has succeeded.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	record, log := filepath.Join(dir, "record"), filepath.Join(dir, "log")
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+name+" >>"+log+"\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return name + "=" + path
	}
	kubernetes, slurm, flux := program("kubernetes", ""), program("slurm", ""), program("flux", "")
	for _, step := range []struct {
		name      string
		cleanup   string // the name of a cleanup that is replaced
		text      string // its new text
		args      []string
		code      int
		ran, left string
	}{
		{"nothing before", "", "", []string{kubernetes}, 0, "", "kubernetes"},
		{"the same scheduler again", "", "", []string{kubernetes}, 0, "", "kubernetes"},
		{"a cleanup that fails", "kubernetes", "exit 3", []string{slurm}, 1, "kubernetes", "kubernetes"},
		{"back after the failure", "", "", []string{kubernetes}, 0, "", "kubernetes"},
		{"a cleanup that hangs", "kubernetes", "exec sleep 60", []string{slurm}, 1, "kubernetes", "kubernetes"},
		{"a cleanup that succeeds", "kubernetes", "", []string{slurm}, 0, "kubernetes", "slurm"},
		{"a second scheduler", "", "", []string{slurm, flux}, 0, "", "flux slurm"},
		{"two before", "flux", "exit 1", []string{kubernetes}, 1, "flux slurm", "flux"},
		{"no scheduler", "flux", "", nil, 0, "flux", ""},
	} {
		if step.cleanup != "" {
			program(step.cleanup, step.text)
		}
		_ = os.Remove(log)
		cmd := exec.Command("bash", append([]string{"-c", "set -u; unit=test.service record=$0 time_limit=1; . ../../modules/handover/handover.sh", record}, step.args...)...)
		out, _ := cmd.CombinedOutput()
		ran, _ := os.ReadFile(log)
		entries, _ := os.ReadDir(record)
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if code := cmd.ProcessState.ExitCode(); code != step.code || strings.Join(strings.Fields(string(ran)), " ") != step.ran || strings.Join(left, " ") != step.left {
			t.Errorf("%s: exit code %d, ran %q, recorded %q\n%s", step.name, code, ran, left, out)
		}
		if step.code != 0 && !strings.Contains(string(out), "run: systemctl restart test.service") {
			t.Errorf("%s: the message does not tell what to do: %s", step.name, out)
		}
	}

	// The garbage collector, or an administrator, has deleted the program.
	if err := os.Symlink("/nix/store/missing", filepath.Join(record, "slurm")); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("bash", "-c", "set -u; unit=u record=$0 time_limit=1; . ../../modules/handover/handover.sh", record).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "slurm ran on this node, but its cleanup /nix/store/missing does not exist any more") {
		t.Errorf("%v: %s", err, out)
	}
}

// Only rules of Kubernetes are deleted.
func TestFirewallChanges(t *testing.T) {
	const saved = `# Generated by iptables-save
*filter
:INPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:nixos-fw - [0:0]
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -j nixos-fw
-A OUTPUT -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP
-A nixos-fw -m comment --comment "not of KUBE-FIREWALL" -j ACCEPT
-A nixos-fw -m comment --comment "said \"was -j KUBE-X\" once" -j LOG --log-prefix "-j KUBE-Y"
-A nixos-fw -p tcp --dport 22 -g KUBE-ODD
COMMIT
# Completed
*nat
:POSTROUTING ACCEPT [3:180]
:CNI-HOSTPORT-DNAT - [0:0]
-A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -m comment --comment "nixbench: pods leave as their node" -j MASQUERADE
-A POSTROUTING -s 192.168.0.0/16 -j MASQUERADE
COMMIT
*mangle
:INPUT ACCEPT [0:0]
COMMIT
`
	const want = `*filter
-D INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-D OUTPUT -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-D nixos-fw -p tcp --dport 22 -g KUBE-ODD
-F KUBE-FIREWALL
-X KUBE-FIREWALL
COMMIT
*nat
-D POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -m comment --comment "nixbench: pods leave as their node" -j MASQUERADE
-F CNI-HOSTPORT-DNAT
-X CNI-HOSTPORT-DNAT
COMMIT
`
	cmd := exec.Command("bash", "-c", `. ../../modules/handover/functions.sh; firewall_changes 'KUBE-|CNI-|FLANNEL-' 'nixbench(-services|: pods leave as their node)'`)
	cmd.Stdin = strings.NewReader(saved)
	out, err := cmd.CombinedOutput()
	if diff := cmp.Diff(want, string(out)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// All file systems below a folder are unmounted, also if the names of their mount points have unusual characters.
func TestUnmountAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	script := `. ../../modules/handover/functions.sh
for name in pods "pods/a 1" 'pods/a\b' 'pods/a\0401' other; do mkdir -p "$0/$name"; mount -t tmpfs none "$0/$name" || exit; done
mkdir "$0/pods/a 1/inner"; mount -t tmpfs none "$0/pods/a 1/inner" || exit
unmount_all "^$0/pods"
echo "failed: $failed, left: $(grep -c "$0" /proc/self/mountinfo)"
`
	out, err := exec.Command("unshare", "--mount", "bash", "-c", script, t.TempDir()).CombinedOutput()
	if want := "failed: 0, left: 1\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

// The control group of a unit stays if processes are in it that the cleanup has left alone, such as containers of other
// users of containerd.
func TestRemoveUnitCgroup(t *testing.T) {
	script := `. ../../modules/handover/functions.sh
systemctl() { return 3; }
cgroup_folders() { [ ! -d "$dir/$1" ] || echo "$dir/$1"; }
dir=$0; mkdir -p "$dir/system.slice/used.service" "$dir/system.slice/empty.service/below"
echo 7 >"$dir/system.slice/used.service/cgroup.procs"
for unit in used.service empty.service absent.service; do remove_unit_cgroup "$unit"; done
echo "failed: $failed, left: $(ls "$dir/system.slice")"
`
	out, err := exec.Command("bash", "-c", script, t.TempDir()).CombinedOutput()
	if want := "failed: 0, left: used.service\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

// end_processes sends SIGTERM once, and SIGKILL to a process that ignores it. Other processes continue.
func TestEndProcesses(t *testing.T) {
	script := `. ../../modules/handover/functions.sh
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
(trap "echo x >>$dir/terms; exec sleep 0.3" TERM; : >"$dir/terms"; while :; do sleep 0.05; done) & polite=$!
(trap "" TERM; exec sleep 60) & stubborn=$!
sleep 60 & other=$!
disown -a
until [ -e "$dir/terms" ]; do sleep 0.05; done
alive() { for p in $polite $stubborn; do ! grep -qs "^State:.[^Z]" "/proc/$p/status" || echo "$p"; done; }
end_processes 1 alive
echo "left: $(alive)" "terms: $(wc -l <"$dir/terms")" "failed: $failed"
kill "$other" && echo "other was left alone"
`
	out, err := exec.Command("timeout", "30", "bash", "-c", script).CombinedOutput()
	if want := "left:  terms: 1 failed: 0\nother was left alone\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

// With cgroup v1, a frozen process ends only after it has been thawed.
func TestEndFrozenProcesses(t *testing.T) {
	const freezer = "/sys/fs/cgroup/freezer"
	group, err := os.MkdirTemp(freezer, "nixbench-test-*")
	if err != nil {
		t.Skipf("needs root and the freezer of cgroup v1: %v", err)
	}
	t.Cleanup(func() {
		os.WriteFile(filepath.Join(group, "freezer.state"), []byte("THAWED"), 0)
		os.Remove(group)
	})
	script := `. ../../modules/handover/functions.sh
sleep 60 >/dev/null 2>&1 & frozen=$!
disown -a
echo $frozen >$GROUP/cgroup.procs
echo FROZEN >$GROUP/freezer.state
until [ "$(cat $GROUP/freezer.state)" = FROZEN ]; do sleep 0.01; done
end_processes 5 cgroup_processes "${GROUP##*/}"
echo "failed: $failed"
rmdir "$GROUP" && echo "the group is empty"
`
	cmd := exec.Command("timeout", "30", "bash", "-c", script)
	cmd.Env = append(os.Environ(), "GROUP="+group)
	out, err := cmd.CombinedOutput()
	if want := "failed: 0\nthe group is empty\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
