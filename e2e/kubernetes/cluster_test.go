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

// site is a hive of lab machines that become a cluster.
type site struct {
	*testing.T
	l       *lab.Lab
	pki     pki
	dir     string
	nixpkgs string
	program string
	// controlPlanes come first; the others are workers.
	controlPlanes int
}

func newSite(t *testing.T, controlPlanes int, names ...string) *site {
	l := lab.Start(t, len(names), lab.WithKubernetes(), lab.WithNames(names...))
	s := &site{T: t, l: l, pki: newPKI(t), dir: t.TempDir(), nixpkgs: fixture.Nixpkgs(t), controlPlanes: controlPlanes}
	s.program = filepath.Join(s.dir, "nixbench")
	if out, err := exec.Command("go", "build", "-o", s.program, "../../cmd/nixbench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
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
	s.write("facts.json", string(facts))
	return s
}

func (s *site) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// hive writes hive.nix, with more settings of Kubernetes for all nodes.
func (s *site) hive(settings string) {
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
    # What containers need that are nodes; a machine does not.
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
      generateSecrets = false; # there are keys already
      encryptionAtRest.enable = true;
      %s
    }; } ];
  };
`, s.pki.dir, s.nixpkgs, s.l.SSHConfig(), modules, s.l.Subnet, settings)
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
	s.write("hive.nix", b.String())
}

// nixbench runs the program in the lab's network.
func (s *site) nixbench(args ...string) string {
	s.Helper()
	code, out := s.try(args...)
	if code != 0 {
		s.Fatalf("nixbench %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// try gives the exit code, and all that was printed.
func (s *site) try(args ...string) (int, string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	cmd := s.l.Command(ctx, s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+s.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (s *site) apply() string {
	s.Helper()
	return s.nixbench("apply", "--no-check", "--facts", "facts.json")
}

// on runs a script on a node that may fail, or not be there.
func (s *site) on(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	out, err := s.l.SSH(ctx, node, script).Output()
	return strings.TrimSpace(string(out)), err
}

const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout=5s "

// wait waits until the script on the node prints want.
func (s *site) wait(limit time.Duration, node, script, want string) {
	s.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if got, _ = s.on(node, script); got == want {
			return
		}
	}
	s.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

// ready waits until exactly these nodes are there and Ready, as a control plane says.
func (s *site) ready(limit time.Duration, from string, nodes ...string) {
	s.Helper()
	s.wait(limit, from, kubectl+`get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`, strings.Join(nodes, " Ready;")+" Ready;")
}

// phase waits for a phase of the node's unit, in both of its files.
func (s *site) phase(limit time.Duration, node, want string) {
	s.Helper()
	s.wait(limit, node, "jq -r .phase /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json | uniq", want)
}

// Named nodes with keys of their own; the unit is stopped in the midst of everything, again
// and again.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "cp", "w1")
	s.hive("")
	s.apply()
	kill := func(node, phase string) {
		s.wait(time.Minute, node, "jq -r .phase /run/nixbench/kubernetes.json", phase)
		s.l.Run(t, node, "systemctl kill --signal=KILL nixbench-kubernetes")
	}
	// The join is short, so somebody waits for it there.
	s.l.Run(t, "w1", `systemd-run -q sh -c 'until [ "$(jq -r .phase /run/nixbench/kubernetes.json)" = join ]; do sleep 0.02; done; systemctl kill --signal=KILL nixbench-kubernetes; touch /root/killed'`)
	kill("cp", "init")
	for _, pause := range []time.Duration{2 * time.Second, 4 * time.Second} {
		s.wait(time.Minute, "cp", "systemctl show -p SubState --value nixbench-kubernetes", "running")
		time.Sleep(pause)
		s.l.Run(t, "cp", "systemctl kill --signal=KILL nixbench-kubernetes 2>/dev/null || true")
	}
	s.wait(2*time.Minute, "w1", "ls /root/killed", "/root/killed")
	s.ready(3*time.Minute, "cp", "cp", "w1")
	s.phase(time.Minute, "cp", "ready")
	s.phase(time.Minute, "w1", "ready")
	s.wait(20*time.Second, "cp", kubectl+`get nodes -l example.org/disk=ssd -o name`, "node/w1")
	// Nobody has adjusted it: it came with that.
	s.wait(5*time.Second, "cp", kubectl+`get node w1 -o jsonpath='{.spec.taints[?(@.key=="example.org/only")].effect}'`, "PreferNoSchedule")
	if got := s.l.Run(t, "cp", "ls /etc/kubernetes/bootstrap-kubelet.conf 2>/dev/null | wc -l"); got != "0" {
		t.Error("the bootstrap credentials are still there")
	}
	s.renewal()
}
