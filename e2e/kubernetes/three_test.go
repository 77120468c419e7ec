package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const etcdctl = "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 etcdctl --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key "

// checkMembers checks the members of etcd, as the one on the node from reports them.
func (g *guestCluster) checkMembers(from, want string) {
	g.Helper()
	if got := g.runOn(from, etcdctl+`member list | awk -F ', ' '{ print $3, $2, $6 }' | sort | tr '\n' ';'`); got != want {
		g.Errorf("etcd has %q, want %q", got, want)
	}
}

const threeMembers = "cp-1 started false;cp-2 started false;cp-3 started false;"

// Of three control planes one after the other is destroyed or lost with its disk. apply replaces it,
// and it is still the same cluster.
func TestThreeControlPlanes(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(3, 0, "")
	began := time.Now()
	g.run("apply")
	t.Logf("three control planes Ready after %.1f s", time.Since(began).Seconds())
	const all = "cp-1 Ready;cp-2 Ready;cp-3 Ready;"
	g.checkNodes(all)
	g.checkMembers("cp-1", threeMembers)
	uid := admin + "get namespace kube-system -o jsonpath={.metadata.uid}"
	id := g.runOn("cp-1", uid)
	checkComplete := func(what string) {
		t.Helper()
		t.Logf("%s: complete again after %.1f s", what, time.Since(began).Seconds())
		for _, node := range []string{"cp-1", "cp-2", "cp-3"} {
			g.checkNodesFrom(node, all)
			g.checkMembers(node, threeMembers)
			if got := g.runOn(node, uid); got != id {
				t.Errorf("%s: %s is in cluster %s, and it was %s", what, node, got, id)
			}
		}
	}

	// destroy removes a node from the cluster before its machine.
	g.run("destroy", "--on", "cp-2", "--yes")
	g.checkNodes("cp-1 Ready;cp-3 Ready;")
	g.checkMembers("cp-1", "cp-1 started false;cp-3 started false;")
	began = time.Now()
	g.run("apply")
	checkComplete("cp-2 was destroyed")

	// A machine is lost with its disk, not by nixbench.
	g.loseMachine("cp-3")
	if got := g.runOn("cp-1", admin+"get --raw /readyz"); got != "ok" {
		t.Errorf("the API on cp-1 says %q", got)
	}
	if code, _, diag := g.try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "cp-3") {
		t.Errorf("check without cp-3: exit code %d\n%s", code, diag)
	}
	began = time.Now()
	g.run("apply")
	checkComplete("cp-3 was lost")

	// The machine is lost whose address is the cluster's endpoint.
	g.loseMachine("cp-1")
	if got := g.runOn("cp-2", admin+"get --raw /readyz"); got != "ok" {
		t.Errorf("the API on cp-2 says %q", got)
	}
	g.run("destroy", "--on", "cp-1", "--yes")
	g.checkMembers("cp-2", "cp-2 started false;cp-3 started false;")
	began = time.Now()
	g.run("apply")
	checkComplete("cp-1, the endpoint, was lost")
	if got := g.runOn("cp-1", "iptables -t nat -S OUTPUT | grep -c nixbench; true"); got != "0" {
		t.Errorf("%s rules of nixbench are left in the OUTPUT chain of cp-1's nat table", got)
	}
	g.run("check")
}

// loseMachine deletes a machine and its disk without nixbench.
func (g *guestCluster) loseMachine(node string) {
	g.Helper()
	for _, verb := range []string{"destroy", "undefine"} {
		if out, err := g.l.Command(g.Context(), "virsh", "-q", "-c", g.l.URIs["lxc"], verb, "bench-"+node).CombinedOutput(); err != nil {
			g.Fatalf("virsh %s: %v\n%s", verb, err, out)
		}
	}
	disks, _ := filepath.Glob(filepath.Join(g.l.PoolPath, "nixbench.*."+node+".*"))
	for _, disk := range disks {
		if err := os.Remove(disk); err != nil {
			g.Log(err)
		}
	}
	g.Logf("deleted the machine of %s and %v", node, disks)
}
