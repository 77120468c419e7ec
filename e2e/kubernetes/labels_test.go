package kubernetes

import "strings"

// labelsAndTaints returns a node's labels, of those that nixbench or this test sets, and its taints.
func (g *guestCluster) labelsAndTaints(node string) string {
	g.Helper()
	return g.runOn("cp-1", admin+"get node "+node+` -o json | jq -r '[.metadata.labels | to_entries[] | select(.key | test("example.org|theirs|bench")) | "\(.key)=\(.value)"] + [.spec.taints[]? | "\(.key)=\(.value // ""):\(.effect)"] | sort | join(" ")'`)
}

const (
	// initialLabels are labels of all nodes. A kubelet may not give its own node the second one.
	initialLabels     = `nodeLabels = { "example.org/disk" = "hdd"; "node-role.kubernetes.io/bench" = ""; }; `
	controlPlaneTaint = "node-role.kubernetes.io/control-plane=:NoSchedule"
)

// checkRegistration checks that kubelets register their nodes with the labels that they may set,
// and that nixbench has set the others.
func (g *guestCluster) checkRegistration() {
	g.Helper()
	for node, want := range map[string]string{"cp-1": " " + controlPlaneTaint, "w-2": ""} {
		if got := g.runOn(node, "ps -C kubelet -o args= | grep -o -- '--node-labels=[^ ]*'"); got != "--node-labels=example.org/disk=hdd" {
			g.Errorf("%s registers with %s", node, got)
		}
		if got := g.labelsAndTaints(node); got != "example.org/disk=hdd node-role.kubernetes.io/bench="+want {
			g.Errorf("%s has %q", node, got)
		}
	}
}

// changeLabelsAndTaints changes labels and taints of a running cluster, and removes them again.
// Nodes must neither be drained nor restarted, and labels and taints of others must remain.
func (g *guestCluster) changeLabelsAndTaints(settings string) {
	g.Helper()
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		want := map[string]string{"cp-1": controlPlaneTaint}[node]
		if got := g.labelsAndTaints(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	before := g.nodeStates("cp-1", "w-1", "w-2")
	g.runOn("cp-1", admin+"label node w-1 theirs=1 && "+admin+"taint node w-1 theirs=1:PreferNoSchedule")
	g.writeHive(1, 2, settings+`nodeLabels = { "example.org/disk" = "ssd"; "node-role.kubernetes.io/bench" = "yes"; };
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
			g.Errorf("plan and apply do not both print %q", line)
		}
	}
	if strings.Contains(apply, "drain") || g.nodeStates("cp-1", "w-1", "w-2") != before {
		g.Errorf("nodes were touched: from\n%s\nto\n%s", before, g.nodeStates("cp-1", "w-1", "w-2"))
	}
	const ours = "example.org/disk=ssd example.org/only=bench:PreferNoSchedule node-role.kubernetes.io/bench=yes"
	for node, want := range map[string]string{"cp-1": ours, "w-1": ours + " theirs=1 theirs=1:PreferNoSchedule", "w-2": ours} {
		if got := g.labelsAndTaints(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	printAnnotations := admin + "get nodes -o jsonpath='{.items[*].metadata.annotations}'"
	annotations := g.runOn("cp-1", printAnnotations)
	if _, _, diag := g.try("apply"); strings.Count(diag, "unchanged") < 3 || strings.Contains(diag, "label") || g.runOn("cp-1", printAnnotations) != annotations {
		g.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	// Labels and taints that the hive has no longer are removed, first from w-1, then from all nodes.
	// The taint of control planes is restored.
	g.writeHive(1, 2, settings)
	g.run("apply", "--on", "w-1")
	for node, want := range map[string]string{"w-1": "theirs=1 theirs=1:PreferNoSchedule", "w-2": ours} {
		if got := g.labelsAndTaints(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	g.run("apply")
	for node, want := range map[string]string{"cp-1": controlPlaneTaint, "w-1": "theirs=1 theirs=1:PreferNoSchedule", "w-2": ""} {
		if got := g.labelsAndTaints(node); got != want {
			g.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	g.runOn("cp-1", admin+"label node w-1 theirs- && "+admin+"taint node w-1 theirs-")
	if g.nodeStates("cp-1", "w-1", "w-2") != before {
		g.Errorf("nodes were touched: from\n%s\nto\n%s", before, g.nodeStates("cp-1", "w-1", "w-2"))
	}
}
