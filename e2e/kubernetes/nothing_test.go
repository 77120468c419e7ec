package kubernetes

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// From an empty hypervisor to a cluster, up, down, and nothing again.
func TestFromNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.hive(1, 2, `images = [ "/usr/share/nixbench-kube/images/probe-1.tar" ];`)
	before, processes := storePaths(t), overhear()
	began := time.Now()
	events := g.run("apply", "--json")
	t.Logf("from nothing to 1 + 2 nodes Ready: %.1f s", time.Since(began).Seconds())
	ps := processes.end()
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		g.wait(time.Second, node, "ctr -n k8s.io images list name==localhost/probe:1 | grep -c io.cri-containerd.pinned=pinned", "1")
	}
	g.run("explain")
	g.run("explain", "--json")
	g.run("runs", "--json")
	g.run("runs", "last", "--log", "cp-1")
	g.run("check", "--deep")
	g.waterfall(began, events, "cp-1", "w-1", "w-2")
	g.probes()
	if got := g.on("cp-1", "for name in kube-apiserver kube-controller; do cat /proc/$(pgrep -o $name)/root/etc/ssl/certs/ca-certificates.crt; done"); got != "authorities of these nodes\nauthorities of these nodes" {
		t.Errorf("whom the control plane believes: %q", got)
	}
	g.unknownService()
	g.staySecret(before, ps, "cp-1", "w-1", "w-2")
	g.kubeconfig()

	if code, _, diag := g.try("apply"); code != 0 || strings.Count(diag, "unchanged") < 3 {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	// Only those that come or go are touched.
	others := g.untouched("cp-1", "w-1", "w-2")
	g.run("apply", "--set", "roles.w.count=4")
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;w-3 Ready;w-4 Ready;")
	if now := g.untouched("cp-1", "w-1", "w-2"); now != others {
		t.Errorf("two more workers have changed others: from\n%s\nto\n%s", others, now)
	}
	others = g.untouched("cp-1", "w-1")
	g.run("apply", "--set", "roles.w.count=1", "--yes")
	g.nodes("cp-1 Ready;w-1 Ready;")

	// Another token: the old one lets nobody in, the new one lets in a new worker.
	old := g.on("cp-1", "cat /run/nixbench/secrets/join-token")
	if !g.tokenWorks(old) {
		t.Error("the first token does not work")
	}
	g.run("secrets", "rotate", "join-token")
	g.run("apply", "--set", "roles.w.count=2")
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
	renewed := g.on("cp-1", "cat /run/nixbench/secrets/join-token")
	if renewed == old || !g.revoked(old) || !g.tokenWorks(renewed) {
		t.Errorf("after a rotation: another token: %v, the old one works: %v, the new one: %v", renewed != old, g.tokenWorks(old), g.tokenWorks(renewed))
	}

	// Without a node that joins it counts at once, too. Tokens of others stay.
	theirs := g.on("cp-1", "kubeadm --kubeconfig /etc/kubernetes/admin.conf token create --description theirs")
	g.run("secrets", "rotate", "join-token")
	g.run("apply", "--set", "roles.w.count=2")
	last := g.on("cp-1", "cat /run/nixbench/secrets/join-token")
	if !g.revoked(renewed) || !g.tokenWorks(last) || !g.tokenWorks(theirs) {
		t.Errorf("after another one: the old one works: %v, the new one: %v, somebody else's: %v", g.tokenWorks(renewed), g.tokenWorks(last), g.tokenWorks(theirs))
	}

	// What the cluster does with a token that has expired.
	g.on("cp-1", admin+"-n kube-system delete secrets --field-selector type=bootstrap.kubernetes.io/token")
	g.run("apply", "--set", "roles.w.count=3")
	g.nodes("cp-1 Ready;w-1 Ready;w-2 Ready;w-3 Ready;")
	if now := g.untouched("cp-1", "w-1"); now != others {
		t.Errorf("scaling and rotation have changed others: from\n%s\nto\n%s", others, now)
	}
	g.run("destroy", "--yes")
}

// revoked waits until a token lets nobody in any more: apply does not wait for that.
func (g *ground) revoked(token string) bool {
	g.Helper()
	for end := time.Now().Add(20 * time.Second); g.tokenWorks(token); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// kubeconfig works from the operator's machine, straight and by a forward.
func (g *ground) kubeconfig() {
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
	file := filepath.Join(g.T.TempDir(), "straight")
	code, config, _ := g.quietly("kubeconfig", "-o", "-")
	if err := os.WriteFile(file, []byte(config), 0o600); code != 0 || err != nil {
		g.Fatalf("kubeconfig: exit code %d, %v", code, err)
	}
	get(file)

	file = filepath.Join(g.T.TempDir(), "forward")
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	cmd := g.command(ctx, "kubeconfig", "--forward", "-o", file)
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
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
}

// probes wants kubeadm to have taken our patches: three pods of kube-proxy without any, four static
// ones that are looked at every second while they start, and two of CoreDNS.
func (g *ground) probes() {
	g.Helper()
	got := g.on("cp-1", admin+`-n kube-system get pods -o json | jq -c '[.items[].spec.containers[0] | .startupProbe.periodSeconds // .readinessProbe.periodSeconds] | group_by(.) | map([length, .[0]])'`)
	if want := "[[3,null],[4,1],[2,2]]"; got != want {
		g.Errorf("pods by how often they are probed: %s, want %s", got, want)
	}
}

// unknownService wants that packets to a Service without rules are not remembered: those that
// follow when there are rules would go the same way.
func (g *ground) unknownService() {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1"} {
		got := g.on(node, `systemctl restart kubelet; sleep 1
iptables -S | grep -c nixbench-services
ip netns add pod; ip link add to-pod type veth peer name eth0 netns pod
ip addr add 10.99.0.1/24 dev to-pod; ip link set to-pod up
ip -n pod addr add 10.99.0.2/24 dev eth0; ip -n pod link set eth0 up; ip -n pod route add default via 10.99.0.1
for at in "" "ip netns exec pod"; do $at curl -s --noproxy '*' --max-time 1 http://10.96.200.200/ || echo "$?"; done
ip netns del pod
conntrack -L -d 10.96.200.200 2>/dev/null | wc -l`)
		if want := "2\n28\n28\n0"; got != want {
			g.Errorf("%s: rules for unknown Services, two connections to one, and what is remembered of them: %q, want %q", node, got, want)
		}
	}
}
