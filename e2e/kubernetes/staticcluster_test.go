package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// staticCluster is a hive with named nodes on machines that the lab has started, and with keys that
// the test makes.
type staticCluster struct {
	*testing.T
	l   *lab.Lab
	pki pki
	dir string
	// controlPlanes come first; the others are workers.
	controlPlanes int
}

func newStaticCluster(t *testing.T, controlPlanes int, names ...string) *staticCluster {
	l := lab.Start(t, len(names), "--kubernetes", "--names", strings.Join(names, ","))
	s := &staticCluster{T: t, l: l, pki: newPKI(t), dir: t.TempDir(), controlPlanes: controlPlanes}
	nodes := map[string]any{}
	for _, m := range l.Machines {
		nodes[m.Name] = map[string]any{"address": m.IP}
	}
	facts, err := json.Marshal(map[string]any{
		"version": 1, "cluster": "lab", "nodes": nodes, "roles": map[string]any{},
		"endpoint": map[string]any{"address": l.Machines[0].IP, "port": 6443}, "caHash": s.pki.caHash,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.writeFile("facts.json", string(facts))
	return s
}

func (s *staticCluster) writeFile(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// writes hive.nix, with more settings of Kubernetes for all nodes.
func (s *staticCluster) writeHive(settings string) {
	s.Helper()
	modules, err := filepath.Abs("../../modules/kubernetes")
	if err != nil {
		s.Fatal(err)
	}
	var b, addresses strings.Builder
	for _, m := range s.l.Machines[:s.controlPlanes] {
		fmt.Fprintf(&addresses, "%q ", m.IP)
	}
	fmt.Fprintf(&b, `let
  keys = names: builtins.listToAttrs (map (name: {
    inherit name;
    value = { keyFile = "%s/${name}"; destDir = "/run/nixbench/secrets"; };
  }) names);
in {
  meta.nixpkgs = import %s { };
  defaults = { name, ... }: {
    deployment.sshOptions = [ "-F" "%s" ];
    deployment.keys = keys [ "join-token" ];
    networking.hostName = "";
    services.openssh.enable = true;
    system.stateVersion = "25.05";
    boot.isContainer = true;
    # Only nodes that are containers need this.
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj = true;
    nixbench.kubernetes.settings = {
      kubelet = {
        failSwapOn = false;
        failCgroupV1 = false;
        imageGCHighThresholdPercent = 100;
        evictionHard = { "memory.available" = "100Mi"; "nodefs.available" = "1%%"; "nodefs.inodesFree" = "1%%"; "imagefs.available" = "1%%"; };
      };
      proxy.conntrack = { maxPerCore = 0; min = 0; };
    };
    imports = [ %s { nixbench.kubernetes = {
      nodeCidr = "%s";
      generateSecrets = false; # the test has made the keys
      encryptionAtRest.enable = true;
      %s
    }; } ];
  };
`, s.pki.dir, nixpkgs, s.l.SSHConfig, modules, s.l.Subnet, settings)
	for i, m := range s.l.Machines {
		kind, more := "worker", `nixbench.kubernetes = { nodeLabels."example.org/disk" = "ssd"; nodeTaints = [ { key = "example.org/only"; effect = "PreferNoSchedule"; } ]; };`
		if i < s.controlPlanes {
			kind = "control-plane"
			more = fmt.Sprintf(`deployment.keys = keys [ "ca.crt" "ca.key" "front-proxy-ca.crt" "front-proxy-ca.key" "etcd-ca.crt" "etcd-ca.key" "sa.key" "sa.pub" "encryption-key" %s];
    nixbench.kubernetes.controlPlanes = [ %s];`, map[bool]string{true: `"kubernetes-init" `}[i == 0], addresses.String())
		}
		fmt.Fprintf(&b, `  %s = {
    imports = [ %s/%s.nix ];
    nixbench.node = { name = "%s"; address = "%s"; index = %d; };
    %s
  };
`, m.Name, modules, kind, m.Name, m.IP, i+1, more)
	}
	b.WriteString("}\n")
	s.writeFile("hive.nix", b.String())
}

// runs the program in the lab's network.
func (s *staticCluster) run(args ...string) string {
	s.Helper()
	code, out := s.try(args...)
	if code != 0 {
		s.Fatalf("nixbench %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// try is run for a command that may fail; it also returns the exit code.
func (s *staticCluster) try(args ...string) (int, string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	cmd := s.l.Command(ctx, program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+s.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (s *staticCluster) runApply() string {
	s.Helper()
	return s.run("apply", "--timeout", "check=0", "--facts", "facts.json")
}

// runs a script on a node that may fail, or not be there.
func (s *staticCluster) tryOn(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	out, err := s.l.SSH(ctx, node, script).Output()
	return strings.TrimSpace(string(out)), err
}

const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout=5s "

// waits until the script on the node prints want.
func (s *staticCluster) waitForOutput(limit time.Duration, node, script, want string) {
	s.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if got, _ = s.tryOn(node, script); got == want {
			return
		}
	}
	s.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

// waits until exactly these nodes are there and Ready, as a control plane says.
func (s *staticCluster) waitUntilReady(limit time.Duration, from string, nodes ...string) {
	s.Helper()
	s.waitForOutput(limit, from, kubectl+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`, strings.Join(nodes, " Ready;")+" Ready;")
}

// waits for a phase of the node's unit, in both of its files.
func (s *staticCluster) waitForPhase(limit time.Duration, node, want string) {
	s.Helper()
	s.waitForOutput(limit, node, "jq -r .phase /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json | uniq", want)
}

// The units that create and join a cluster are killed in several phases; systemd starts them again,
// and the cluster becomes complete.
func TestKilledUnits(t *testing.T) {
	t.Parallel()
	s := newStaticCluster(t, 1, "cp", "w1")
	s.writeHive("")
	s.runApply()
	kill := func(node, phase string) {
		s.waitForOutput(time.Minute, node, "jq -r .phase /run/nixbench/kubernetes.json", phase)
		s.l.Run(t, node, "systemctl kill --signal=KILL nixbench-kubernetes")
	}
	// The phase join is short, so a process on the node waits for it and kills the unit.
	s.l.Run(t, "w1", `systemd-run -q sh -c 'until [ "$(jq -r .phase /run/nixbench/kubernetes.json)" = join ]; do sleep 0.02; done; systemctl kill --signal=KILL nixbench-kubernetes; touch /root/killed'`)
	kill("cp", "init")
	for _, pause := range []time.Duration{2 * time.Second, 4 * time.Second} {
		s.waitForOutput(time.Minute, "cp", "systemctl show -p SubState --value nixbench-kubernetes", "running")
		time.Sleep(pause)
		s.l.Run(t, "cp", "systemctl kill --signal=KILL nixbench-kubernetes 2>/dev/null || true")
	}
	s.waitForOutput(2*time.Minute, "w1", "ls /root/killed", "/root/killed")
	s.waitUntilReady(3*time.Minute, "cp", "cp", "w1")
	s.waitForPhase(time.Minute, "cp", "ready")
	s.waitForPhase(time.Minute, "w1", "ready")
	s.waitForOutput(20*time.Second, "cp", kubectl+`get nodes -l example.org/disk=ssd -o name`, "node/w1")
	// The taint was set when the kubelet registered the node; nothing adds it afterwards.
	s.waitForOutput(5*time.Second, "cp", kubectl+`get node w1 -o jsonpath='{.spec.taints[?(@.key=="example.org/only")].effect}'`, "PreferNoSchedule")
	if got := s.l.Run(t, "cp", "ls /etc/kubernetes/bootstrap-kubelet.conf 2>/dev/null | wc -l"); got != "0" {
		t.Error("the bootstrap credentials are still there")
	}
	s.checkRenewal()
}
