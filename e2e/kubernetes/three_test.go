package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const etcdctl = "ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 etcdctl --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key "

// members wants etcd to have exactly these, as one of its nodes says.
func (g *ground) members(from, want string) {
	g.Helper()
	if got := g.on(from, etcdctl+`member list | awk -F ', ' '{ print $3, $2, $6 }' | sort | tr '\n' ';'`); got != want {
		g.Errorf("etcd has %q, want %q", got, want)
	}
}

const three = "cp-1 started false;cp-2 started false;cp-3 started false;"

// Three control planes: each can be lost, one after the other, and comes back as what it was.
func TestThreeControlPlanes(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.hive(3, 0, "")
	began := time.Now()
	g.run("apply")
	t.Logf("three control planes Ready after %.1f s", time.Since(began).Seconds())
	const all = "cp-1 Ready;cp-2 Ready;cp-3 Ready;"
	g.nodes(all)
	g.members("cp-1", three)
	uid := admin + "get namespace kube-system -o jsonpath={.metadata.uid}"
	id := g.on("cp-1", uid)
	whole := func(what string) {
		t.Helper()
		t.Logf("%s: whole again after %.1f s", what, time.Since(began).Seconds())
		for _, node := range []string{"cp-1", "cp-2", "cp-3"} {
			g.nodesFrom(node, all)
			g.members(node, three)
			if got := g.on(node, uid); got != id {
				t.Errorf("%s: %s is in cluster %s, and it was %s", what, node, got, id)
			}
		}
	}

	// One that is destroyed leaves the cluster before.
	g.run("destroy", "--on", "cp-2", "--yes")
	g.nodes("cp-1 Ready;cp-3 Ready;")
	g.members("cp-1", "cp-1 started false;cp-3 started false;")
	began = time.Now()
	g.run("apply")
	whole("cp-2 was destroyed")

	// One that is lost with its disk, behind our back.
	g.lose("cp-3")
	if got := g.on("cp-1", admin+"get --raw /readyz"); got != "ok" {
		t.Errorf("the API on cp-1 says %q", got)
	}
	if code, _, diag := g.try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "cp-3") {
		t.Errorf("check without cp-3: exit code %d\n%s", code, diag)
	}
	began = time.Now()
	g.run("apply")
	whole("cp-3 was lost")

	// The one whose address is the endpoint.
	g.lose("cp-1")
	if got := g.on("cp-2", admin+"get --raw /readyz"); got != "ok" {
		t.Errorf("the API on cp-2 says %q", got)
	}
	g.run("destroy", "--on", "cp-1", "--yes")
	g.members("cp-2", "cp-2 started false;cp-3 started false;")
	began = time.Now()
	g.run("apply")
	whole("cp-1, the endpoint, was lost")
	if got := g.on("cp-1", "iptables -t nat -S OUTPUT | grep -c nixbench; true"); got != "0" {
		t.Errorf("%s detours are left", got)
	}
	g.run("check")
}

// lose ends a machine and removes its disk, as if its hypervisor had burnt down.
func (g *ground) lose(node string) {
	g.Helper()
	for _, verb := range []string{"destroy", "undefine"} {
		if out, err := g.l.Command(g.Context(), "virsh", "-q", "-c", g.l.URI("lxc"), verb, "bench-"+node).CombinedOutput(); err != nil {
			g.Fatalf("virsh %s: %v\n%s", verb, err, out)
		}
	}
	disks, _ := filepath.Glob(filepath.Join(g.l.PoolPath(), "nixbench.*."+node+".*"))
	for _, disk := range disks {
		if err := os.Remove(disk); err != nil {
			g.Log(err)
		}
	}
	g.Logf("%s and %v are gone", node, disks)
}
