package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Machines of control planes change one after the other, and the cluster stays what it was.
func TestMachinesInTurn(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.hive(3, 0, "")
	g.run("apply")
	uid := admin + "get namespace kube-system -o jsonpath={.metadata.uid}"
	id := g.on("cp-1", uid)
	same := func(what string) {
		t.Helper()
		for _, node := range []string{"cp-1", "cp-2", "cp-3"} {
			g.nodesFrom(node, "cp-1 Ready;cp-2 Ready;cp-3 Ready;")
			g.members(node, three)
			if got := g.on(node, uid); got != id {
				t.Errorf("%s: %s is in cluster %s, and it was %s", what, node, got, id)
			}
		}
	}

	resized := []string{"--set", "roles.cp.memory=2900M"}
	g.inTurn("apply", resized...)
	same("other sizes")

	// What makes an image another one need not be its disk.
	image := t.TempDir()
	if err := os.Symlink(g.image, filepath.Join(image, "disk"+filepath.Ext(g.image))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "cmdline"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.inTurn("apply", append(resized, "--recreate", "--set", "roles.cp.image="+image)...)
	same("other images")
}

// inTurn wants the machines of all control planes changed, each after its node has left, and
// the next when it is back.
func (g *ground) inTurn(command string, args ...string) {
	g.Helper()
	before := g.untouched("cp-1", "cp-2", "cp-3")
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
	after := strings.Split(g.untouched("cp-1", "cp-2", "cp-3"), "\n")
	for i, was := range strings.Split(before, "\n") {
		if after[i] == was {
			g.Errorf("cp-%d was left as it is", i+1)
		}
	}
}
