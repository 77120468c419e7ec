package kubernetes

import (
	"context"
	"encoding/json"
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
      encryptionAtRest.enable = true;
      %s
    }; } ];
  };
`, s.pki.dir, s.nixpkgs, s.l.SSHConfig(), modules, s.l.Subnet, settings)
	for i, m := range s.l.Machines {
		kind, more := "worker", `nixbench.kubernetes.nodeLabels."example.org/disk" = "ssd";`
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
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	cmd := s.l.Command(ctx, s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+s.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("nixbench %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *site) apply() string {
	s.Helper()
	return s.nixbench("apply", "--facts", "facts.json")
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

// TestCluster is the life of a small cluster.
func TestCluster(t *testing.T) {
	s := newSite(t, 1, "cp", "w1", "w2")
	s.hive("")
	began := time.Now()
	s.apply()
	switched := time.Since(began)
	s.ready(2*time.Minute, "cp", "cp", "w1", "w2")
	t.Logf("switched after %.1f s, all Ready after %.1f s", switched.Seconds(), time.Since(began).Seconds())
	for _, node := range []string{"cp", "w1", "w2"} {
		s.phase(20*time.Second, node, "ready")
		if got := s.l.Run(t, node, "systemctl --failed --no-legend"); got != "" {
			t.Errorf("%s: failed units: %s", node, got)
		}
	}
	s.roundTrip()
	s.secretsStaySecret()

	// Nothing to do.
	before := s.l.Run(t, "w1", "readlink /nix/var/nix/profiles/system; cat /run/nixbench/kubernetes.json")
	s.apply()
	if after := s.l.Run(t, "w1", "readlink /nix/var/nix/profiles/system; cat /run/nixbench/kubernetes.json"); after != before {
		t.Errorf("a second apply changed w1: %s, then %s", before, after)
	}

	// Changed settings, without a reboot, a new node or a token.
	s.hive(`settings.kubelet.maxPods = 77; apiServer.extraArgs.v = 3; audit.enable = true;`)
	s.apply()
	maxPods := kubectl + "get node %s -o jsonpath={.status.capacity.pods}"
	for _, node := range []string{"cp", "w1", "w2"} {
		s.wait(time.Minute, "cp", fmt.Sprintf(maxPods, node), "77")
	}
	s.wait(time.Minute, "cp", "ps -C kube-apiserver -o args= | grep -o -- ' --v=3'", "--v=3")
	s.wait(time.Minute, "cp", "test -s /var/log/kubernetes/audit/audit.log && echo yes", "yes")
	s.ready(time.Minute, "cp", "cp", "w1", "w2")

	// Back again, on one node.
	s.nixbench("rollback", "--on", "w1", "--yes")
	s.wait(time.Minute, "cp", fmt.Sprintf(maxPods, "w1"), "110")
	s.wait(time.Minute, "cp", fmt.Sprintf(maxPods, "w2"), "77")
	s.ready(time.Minute, "cp", "cp", "w1", "w2")

	// After a reboot there are no secrets in /run, and none are needed. (Control groups
	// that a container leaves behind cost its next kubelet three seconds each.)
	boots := map[string]string{}
	for _, m := range s.l.Machines {
		boots[m.Name] = s.l.BootID(t, m.Name)
		_, _ = s.on(m.Name, "systemctl --no-block reboot")
	}
	for name, boot := range boots {
		s.wait(3*time.Minute, name, "test $(cat /proc/sys/kernel/random/boot_id) != "+boot+" && ls /run/nixbench/secrets 2>/dev/null | wc -l", "0")
	}
	s.ready(4*time.Minute, "cp", "cp", "w1", "w2")
	s.roundTrip()
}

// roundTrip lets a pod on one worker ask a service for a pod on the other, by name.
func (s *site) roundTrip() {
	s.Helper()
	s.l.Run(s.T, "cp", "cat >/root/probe.json <<'EOF'\n"+probe+"\nEOF\n"+kubectl+"delete --ignore-not-found --now -f /root/probe.json; "+kubectl+"apply -f /root/probe.json")
	s.wait(2*time.Minute, "cp", kubectl+"get job asks -o jsonpath={.status.succeeded}", "1")
	if got := s.l.Run(s.T, "cp", kubectl+"logs job/asks"); !strings.Contains(got, "answers") {
		s.Errorf("the service says %q", got)
	}
}

const probe = `{ "apiVersion": "v1", "kind": "List", "items": [
  { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "answers", "labels": { "app": "answers" } },
    "spec": { "nodeName": "w1", "terminationGracePeriodSeconds": 0,
      "containers": [ { "name": "probe", "image": "localhost/probe:1", "args": [ "serve" ] } ] } },
  { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "answers" },
    "spec": { "selector": { "app": "answers" }, "ports": [ { "port": 80, "targetPort": 8080 } ] } },
  { "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "asks" },
    "spec": { "backoffLimit": 20, "template": { "spec": { "nodeName": "w2", "restartPolicy": "OnFailure",
      "containers": [ { "name": "probe", "image": "localhost/probe:1",
        "args": [ "get", "http://answers.default.svc.cluster.local/", "3" ] } ] } } } }
] }`

// secretsStaySecret looks for the secret half of the token where everybody can read.
func (s *site) secretsStaySecret() {
	s.Helper()
	_, secret, _ := strings.Cut(s.pki.token, ".")
	for _, m := range s.l.Machines {
		// The control: the search finds it where it belongs.
		if got := s.l.Run(s.T, m.Name, "grep -rlF "+secret+" /run/nixbench/secrets"); !strings.Contains(got, "join-token") {
			s.Errorf("%s: the token is not where it was put", m.Name)
		}
		got := s.l.Run(s.T, m.Name, "grep -rlF "+secret+" /run/nixbench/*.json /var/lib/nixbench /run/nixbench/kubernetes /var/log/pods /etc/kubernetes /var/lib/kubelet/*.* 2>/dev/null;"+
			" find /nix/store -type f -newer /etc/machine-id -size -1000k -exec grep -lF "+secret+" {} + ;"+
			" journalctl --no-pager -o cat -u nixbench-kubernetes -u kubelet | grep -F "+secret+" | head -n 3; true")
		if got != "" {
			s.Errorf("%s: the token is in %s", m.Name, got)
		}
	}
	if got := s.l.Run(s.T, "cp", "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 etcdctl --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key"+
		" get --print-value-only --prefix /registry/secrets/kube-system/bootstrap-token | head -c 24"); got != "k8s:enc:secretbox:v1:key" {
		s.Errorf("etcd stores secrets as %q", got)
	}
}

// TestKilled stops the unit in the midst of everything, again and again.
func TestKilled(t *testing.T) {
	s := newSite(t, 1, "cp", "w1")
	s.hive("")
	s.apply()
	kill := func(node, phase string) {
		s.wait(time.Minute, node, "jq -r .phase /run/nixbench/kubernetes.json", phase)
		s.l.Run(t, node, "systemctl kill --signal=KILL nixbench-kubernetes")
	}
	kill("cp", "init")
	for _, pause := range []time.Duration{2 * time.Second, 4 * time.Second} {
		s.wait(time.Minute, "cp", "systemctl show -p SubState --value nixbench-kubernetes", "running")
		time.Sleep(pause)
		s.l.Run(t, "cp", "systemctl kill --signal=KILL nixbench-kubernetes 2>/dev/null || true")
	}
	kill("w1", "join")
	s.ready(3*time.Minute, "cp", "cp", "w1")
	s.phase(time.Minute, "cp", "ready")
	s.phase(time.Minute, "w1", "ready")
	if got := s.l.Run(t, "cp", "ls /etc/kubernetes/bootstrap-kubelet.conf 2>/dev/null | wc -l"); got != "0" {
		t.Error("the bootstrap credentials are still there")
	}
}

// TestFirstControlPlaneComesBack makes the first of three control planes anew, whose
// address is the cluster's endpoint. It must join the others, not create a cluster.
func TestFirstControlPlaneComesBack(t *testing.T) {
	s := newSite(t, 3, "cp1", "cp2", "cp3")
	s.hive("")
	began := time.Now()
	s.apply()
	s.ready(4*time.Minute, "cp1", "cp1", "cp2", "cp3")
	for _, node := range []string{"cp1", "cp2", "cp3"} {
		s.phase(2*time.Minute, node, "ready")
	}
	t.Logf("three control planes after %.1f s", time.Since(began).Seconds())
	const members = "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 etcdctl --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key member list | grep -c started"
	s.wait(time.Minute, "cp2", members, "3")
	// Even kubeconfig on cp2 says that the API is on cp1.
	there := kubectl + "--server https://" + s.l.Machine("cp2").IP + ":6443 "
	id := s.l.Run(t, "cp2", there+"get namespace kube-system -o jsonpath={.metadata.uid}")

	// A machine that was made anew has nothing of this, and no permit.
	s.l.Run(t, "cp1", "nixbench-kubernetes-reset --yes >/dev/null 2>&1; rm -rf /run/nixbench/secrets/kubernetes-init; ls /var/lib/etcd/member 2>/dev/null; true")
	s.wait(time.Minute, "cp2", there+"delete --ignore-not-found node cp1 >/dev/null && "+members, "2")
	began = time.Now()
	s.l.Run(t, "cp1", "systemctl start nixbench-kubernetes")
	s.ready(4*time.Minute, "cp2", "cp1", "cp2", "cp3")
	s.phase(2*time.Minute, "cp1", "ready")
	t.Logf("back after %.1f s", time.Since(began).Seconds())
	if got := s.l.Run(t, "cp1", kubectl+"get namespace kube-system -o jsonpath={.metadata.uid}"); got != id {
		t.Errorf("cp1 is in cluster %s, the others are in %s", got, id)
	}
	s.wait(time.Minute, "cp1", members, "3")
	if got := s.l.Run(t, "cp1", "iptables -t nat -S OUTPUT | grep -c nixbench; true"); got != "0" {
		t.Errorf("%s detours are left", got)
	}
}
