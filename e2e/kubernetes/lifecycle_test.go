package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// One cluster from its creation on an empty hypervisor to its destruction: it is scaled up and
// down, and its nodes cannot become other nodes.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(1, 2, `images = [ "/usr/share/nixbench-kube/images/probe-1.tar" ];`)
	before, watch := fixture.StorePaths(), watchProcesses()
	began := time.Now()
	events := g.run("apply", "--json")
	ended := time.Now()
	processes := watch.stop()
	g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		g.waitForOutput(time.Second, node, "ctr -n k8s.io images list name==localhost/probe:1 | grep -c io.cri-containerd.pinned=pinned", "1")
	}
	g.run("explain")
	g.run("explain", "--json")
	g.run("runs", "--json")
	g.run("runs", "last", "--log", "cp-1")
	g.run("check", "--deep")
	timeline := g.readTimeline(events, "cp-1", "w-1", "w-2")
	t.Logf("from an empty hypervisor to 1 + 2 nodes Ready:\n%s\n%s", formatWaterfall(began, ended, timeline), formatTimeline(began, timeline))
	g.checkProbes()
	if got := g.runOn("cp-1", "for name in kube-apiserver kube-controller; do cat /proc/$(pgrep -o $name)/root/etc/ssl/certs/ca-certificates.crt; done"); got != "authorities of these nodes\nauthorities of these nodes" {
		t.Errorf("the certificate authorities that the control plane trusts: %q", got)
	}
	g.checkUnknownService()
	g.checkNoSecretLeaked(before, processes, "cp-1", "w-1", "w-2")
	g.checkKubeconfig()

	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 3 {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	// Scaling does not change the other nodes.
	others := g.nodeStates("cp-1", "w-1", "w-2")
	g.run("apply", "--set", "roles.w.count=4")
	g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;w-3 Ready;w-4 Ready;")
	if now := g.nodeStates("cp-1", "w-1", "w-2"); now != others {
		t.Errorf("two more workers have changed other nodes: from\n%s\nto\n%s", others, now)
	}
	others = g.nodeStates("cp-1", "w-1")
	g.run("apply", "--set", "roles.w.count=1", "--yes")
	g.checkNodes("cp-1 Ready;w-1 Ready;")

	// Nodes join at any time, without a token.
	g.run("apply", "--set", "roles.w.count=2")
	g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	if now := g.nodeStates("cp-1", "w-1"); now != others {
		t.Errorf("scaling has changed other nodes: from\n%s\nto\n%s", others, now)
	}
	g.checkJoinCredentials("w-1", "w-2")
	g.run("destroy", "--yes")
}

// checkJoinCredentials checks that there is no bootstrap token, that nodes have no credentials to join when they have
// joined, and that the credentials of a node are of no use to become another one.
func (g *guestCluster) checkJoinCredentials(node, other string) {
	g.Helper()
	if got := g.runOn("cp-1", admin+"-n kube-system get secrets --field-selector type=bootstrap.kubernetes.io/token -o name"); got != "" {
		g.Errorf("there are bootstrap tokens: %s", got)
	}
	if got := g.runOn(node, "ls /run/nixbench/secrets/ /run/nixbench/kubernetes/ 2>/dev/null | grep -e join || :"); got != "" {
		g.Errorf("%s has the credentials to join: %s", node, got)
	}
	key := newKey(g)
	for name, want := range map[string]string{node: "created", other: "can only create a node CSR with CN=system:node:" + node} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}}, key)
		if err != nil {
			g.Fatal(err)
		}
		csr, err := json.Marshal(map[string]any{
			"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": "as-" + name},
			"spec": map[string]any{"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": []string{"digital signature", "client auth"},
				"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		})
		if err != nil {
			g.Fatal(err)
		}
		// The kubelet's user is that of the credentials to join.
		if out, _ := g.tryOnWithInput(node, string(csr), "kubectl --kubeconfig /etc/kubernetes/kubelet.conf create --validate=false -f - 2>&1"); !strings.Contains(out, want) {
			g.Errorf("%s requests a certificate for %s: %s, want %q", node, name, out, want)
		}
	}
}

// checkKubeconfig checks that kubectl on the operator's machine works with the written kubeconfig:
// with a direct connection, and with a forwarded port.
func (g *guestCluster) checkKubeconfig() {
	g.Helper()
	parts, err := exec.Command("../kube/build").Output()
	if err != nil {
		g.Fatal(err)
	}
	kubectl := filepath.Join(strings.TrimSpace(string(parts)), "root/usr/bin/kubectl")
	get := func(file string) {
		g.Helper()
		out, err := g.l.Command(g.Context(), kubectl, "--kubeconfig", file, "get", "nodes", "--no-headers").CombinedOutput()
		if err != nil || strings.Count(string(out), " Ready ") != 3 {
			g.Errorf("kubectl with %s: %v\n%s", file, err, out)
		}
	}
	file := filepath.Join(g.TempDir(), "direct")
	code, config, _ := g.runUnlogged("kubeconfig", "-o", "-")
	if err := os.WriteFile(file, []byte(config), 0o600); code != 0 || err != nil {
		g.Fatalf("kubeconfig: exit code %d, %v", code, err)
	}
	get(file)

	g.checkForward(get)
	for _, how := range []string{"kubectl", "kubectl --forward"} {
		args := append(strings.Fields(how), "get", "nodes", "--no-headers")
		if out, code := g.runWithKubectl(kubectl, args...); code != 0 || strings.Count(out, " Ready ") != 3 {
			g.Errorf("nixbench %s: exit code %d\n%s", how, code, out)
		}
		args = append(strings.Fields(how), "get", "nodes", "absent")
		if out, code := g.runWithKubectl(kubectl, args...); code != 1 || !strings.Contains(out, "(NotFound)") || strings.Contains(out, "exit status") {
			g.Errorf("nixbench %s of a node that does not exist: exit code %d\n%s", how, code, out)
		}
	}
}

// runWithKubectl runs nixbench with a kubectl on PATH, and returns its output and its exit code.
func (g *guestCluster) runWithKubectl(kubectl string, args ...string) (string, int) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	cmd := g.command(ctx, args...)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// checkForward checks that --forward has a kubeconfig of its own while it runs, and leaves the other one as it is.
func (g *guestCluster) checkForward(get func(file string)) {
	g.Helper()
	if code, _, _ := g.runUnlogged("kubeconfig"); code != 0 {
		g.Fatalf("kubeconfig: exit code %d", code)
	}
	kept := filepath.Join(g.dir, ".nixbench/bench", "kubeconfig")
	before, err := os.ReadFile(kept)
	if err != nil {
		g.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	cmd := g.command(ctx, "kubeconfig", "--forward")
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	var file string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && file == ""; time.Sleep(100 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(g.dir, ".nixbench/bench", "secrets/forward/kubeconfig-*")); len(found) == 1 {
			file = found[0]
		}
	}
	get(file)
	var c struct {
		Clusters []struct{ Cluster struct{ Server string } }
	}
	data, _ := os.ReadFile(file)
	if err := json.Unmarshal(data, &c); err != nil || len(c.Clusters) != 1 || !strings.HasPrefix(c.Clusters[0].Cluster.Server, "https://127.0.0.1:") {
		g.Errorf("--forward: %v, %v", c, err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		g.Errorf("--forward after Ctrl-C: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		g.Errorf("the kubeconfig of --forward is left: %v", err)
	}
	if after, err := os.ReadFile(kept); err != nil || string(after) != string(before) {
		g.Errorf("--forward has changed the kubeconfig in the state folder: %v", err)
	}
}

// checkProbes checks that kubeadm has applied the module's patches: three pods of kube-proxy have no
// probe; four static pods while they start, and two of CoreDNS, are probed every second.
func (g *guestCluster) checkProbes() {
	g.Helper()
	got := g.runOn("cp-1", admin+`-n kube-system get pods -o json | jq -c '[.items[].spec.containers[0] | .startupProbe.periodSeconds // .readinessProbe.periodSeconds] | group_by(.) | map([length, .[0]])'`)
	if want := "[[3,null],[6,1]]"; got != want {
		g.Errorf("numbers of pods by the seconds between their probes: %s, want %s", got, want)
	}
}

// checkUnknownService checks that packets to a Service for which kube-proxy has no rules yet are
// rejected and leave no conntrack entry: with such an entry, packets of the same connection would
// bypass the rules that kube-proxy adds later.
func (g *guestCluster) checkUnknownService() {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1"} {
		got := g.runOn(node, `systemctl restart kubelet; sleep 1
iptables -S | grep -c nixbench-services
ip netns add pod; ip link add to-pod type veth peer name eth0 netns pod
ip addr add 10.99.0.1/24 dev to-pod; ip link set to-pod up
ip -n pod addr add 10.99.0.2/24 dev eth0; ip -n pod link set eth0 up; ip -n pod route add default via 10.99.0.1
for at in "" "ip netns exec pod"; do $at curl -s --noproxy '*' --max-time 1 http://10.96.200.200/ || echo "$?"; done
ip netns del pod
conntrack -L -d 10.96.200.200 2>/dev/null | wc -l`)
		if want := "2\n28\n28\n0"; got != want {
			g.Errorf("%s: rules for unknown Services, exit codes of two connections, and conntrack entries: %q, want %q", node, got, want)
		}
	}
}
