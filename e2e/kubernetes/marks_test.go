package kubernetes

import "strings"

// marksOf are labels of ours and theirs, and taints, of a node.
func (g *ground) marksOf(node string) string {
	g.Helper()
	return g.on("cp-1", admin+"get node "+node+` -o json | jq -r '[.metadata.labels | to_entries[] | select(.key | test("example.org|theirs|bench")) | "\(.key)=\(.value)"] + [.spec.taints[]? | "\(.key)=\(.value // ""):\(.effect)"] | sort | join(" ")'`)
}

const (
	// begin is what nodes register with; the second label is one that they may not give themselves.
	begin = `nodeLabels = { "example.org/disk" = "hdd"; "node-role.kubernetes.io/bench" = ""; }; `
	usual = "node-role.kubernetes.io/control-plane=:NoSchedule"
)

// registered wants nodes to have come with what they may, and to have got the rest.
func (g *ground) registered() {
	g.Helper()
	for node, want := range map[string]string{"cp-1": " " + usual, "w-2": ""} {
		if got := g.on(node, "ps -C kubelet -o args= | grep -o -- '--node-labels=[^ ]*'"); got != "--node-labels=example.org/disk=hdd" {
			g.Errorf("%s registers with %s", node, got)
		}
		if got := g.marksOf(node); got != "example.org/disk=hdd node-role.kubernetes.io/bench="+want {
			g.Errorf("%s has %q", node, got)
		}
	}
}

// marks changes labels and taints of a living cluster. Nothing else may change.
func (g *ground) marks(settings string) {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		want := map[string]string{"cp-1": usual}[node]
		if got := g.marksOf(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	before := g.untouched("cp-1", "w-1", "w-2")
	g.on("cp-1", admin+"label node w-1 theirs=1 && "+admin+"taint node w-1 theirs=1:PreferNoSchedule")
	g.hive(1, 2, settings+`nodeLabels = { "example.org/disk" = "ssd"; "node-role.kubernetes.io/bench" = "yes"; };
      nodeTaints = [ { key = "example.org/only"; value = "bench"; effect = "PreferNoSchedule"; } ];`)
	const words = "label example.org/disk=ssd, label node-role.kubernetes.io/bench=yes, "
	lines := []string{
		"cp-1: " + words + "no taint node-role.kubernetes.io/control-plane:NoSchedule, taint example.org/only=bench:PreferNoSchedule",
		"w-1, w-2: " + words + "taint example.org/only=bench:PreferNoSchedule",
	}
	plan := g.run("plan")
	_, _, apply := g.try("apply")
	for _, line := range lines {
		if !strings.Contains(plan, line) || !strings.Contains(apply, line) {
			g.Errorf("plan and apply do not both say %q", line)
		}
	}
	if strings.Contains(apply, "drain") || g.untouched("cp-1", "w-1", "w-2") != before {
		g.Errorf("nodes were touched: from\n%s\nto\n%s", before, g.untouched("cp-1", "w-1", "w-2"))
	}
	const ours = "example.org/disk=ssd example.org/only=bench:PreferNoSchedule node-role.kubernetes.io/bench=yes"
	for node, want := range map[string]string{"cp-1": ours, "w-1": ours + " theirs=1 theirs=1:PreferNoSchedule", "w-2": ours} {
		if got := g.marksOf(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	version := admin + "get nodes -o jsonpath='{.items[*].metadata.annotations}'"
	noted := g.on("cp-1", version)
	if _, _, diag := g.try("apply"); strings.Count(diag, "unchanged") < 3 || strings.Contains(diag, "label") || g.on("cp-1", version) != noted {
		g.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	// What we gave goes, on one node after the other; what we took comes back.
	g.hive(1, 2, settings)
	g.run("apply", "--on", "w-1")
	for node, want := range map[string]string{"w-1": "theirs=1 theirs=1:PreferNoSchedule", "w-2": ours} {
		if got := g.marksOf(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	g.run("apply")
	for node, want := range map[string]string{"cp-1": usual, "w-1": "theirs=1 theirs=1:PreferNoSchedule", "w-2": ""} {
		if got := g.marksOf(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	g.on("cp-1", admin+"label node w-1 theirs- && "+admin+"taint node w-1 theirs-")
	if g.untouched("cp-1", "w-1", "w-2") != before {
		g.Errorf("nodes were touched: from\n%s\nto\n%s", before, g.untouched("cp-1", "w-1", "w-2"))
	}
}
