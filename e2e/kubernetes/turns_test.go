package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Machines of control planes are resized and recreated one after the other, and it is still the
// same cluster with the same members.
func TestChangeControlPlaneMachines(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(3, 0, "")
	g.run("apply")
	uid := admin + "get namespace kube-system -o jsonpath={.metadata.uid}"
	id := g.runOn("cp-1", uid)
	checkSameCluster := func(what string) {
		t.Helper()
		for _, node := range []string{"cp-1", "cp-2", "cp-3"} {
			g.checkNodesFrom(node, "cp-1 Ready;cp-2 Ready;cp-3 Ready;")
			g.checkMembers(node, threeMembers)
			if got := g.runOn(node, uid); got != id {
				t.Errorf("%s: %s is in cluster %s, and it was %s", what, node, got, id)
			}
		}
	}

	resized := []string{"--set", "roles.cp.memory=2900M"}
	g.changeMachinesInTurn("apply", resized...)
	checkSameCluster("other sizes")

	// A new image with the same disk, but another kernel command line.
	image := t.TempDir()
	if err := os.Symlink(g.image, filepath.Join(image, "disk"+filepath.Ext(g.image))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "cmdline"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.changeMachinesInTurn("apply", append(resized, "--recreate", "--set", "roles.cp.image="+image)...)
	checkSameCluster("other images")

	// kubeadm joins cp-2 once more, as after an attempt that failed when etcd had promoted the node's member already.
	g.runOn("cp-2", "rm /var/lib/nixbench/kubernetes/joined && systemctl restart nixbench-kubernetes")
	g.waitForOutput(3*time.Minute, "cp-2", "ls /var/lib/nixbench/kubernetes/joined >/dev/null && jq -r .phase /run/nixbench/kubernetes.json", "ready")
	checkSameCluster("cp-2 joined again")
}

// changeMachinesInTurn runs nixbench, and checks that it changes the machines of all control planes
// one after the other: each node is drained before, and uncordoned before the next one's turn.
func (g *guestCluster) changeMachinesInTurn(command string, args ...string) {
	g.Helper()
	before := g.nodeStates("cp-1", "cp-2", "cp-3")
	code, out, diag := g.try(append([]string{command, "--json", "--yes"}, args...)...)
	if code != 0 {
		g.Fatalf("exit code %d\n%s", code, diag)
	}
	var turns []string
	for line := range strings.Lines(out + diag) {
		var e struct{ Event, Phase, Node string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "node-start" && (e.Phase == "drain" || e.Phase == "boot") {
			turns = append(turns, e.Node+" "+e.Phase)
		}
	}
	var want []string
	for _, node := range []string{"cp-1", "cp-2", "cp-3"} {
		want = append(want, node+" drain", node+" boot", node+" drain")
	}
	if got := slices.Compact(turns); !slices.Equal(got, want) {
		g.Errorf("turns: %q, want %q", got, want)
	}
	after := strings.Split(g.nodeStates("cp-1", "cp-2", "cp-3"), "\n")
	for i, was := range strings.Split(before, "\n") {
		if after[i] == was {
			g.Errorf("the machine of cp-%d has not changed", i+1)
		}
	}
}
