package kubernetes

import (
	"strings"
	"testing"
	"time"
)

// undrainable has pods on w-1 that a drain would delete permanently (a bare pod, and a pod with an
// emptyDir volume), and a pod whose PodDisruptionBudget never allows its eviction.
const undrainable = `
apiVersion: v1
kind: Pod
metadata: { name: debug }
spec: { nodeName: w-1, terminationGracePeriodSeconds: 0, containers: [ { name: main, image: localhost/probe:1, args: [ serve ] } ] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: cache }
spec:
  selector: { matchLabels: { app: cache } }
  template:
    metadata: { labels: { app: cache } }
    spec:
      nodeSelector: { kubernetes.io/hostname: w-1 }
      terminationGracePeriodSeconds: 0
      volumes: [ { name: data, emptyDir: {} } ]
      containers: [ { name: main, image: localhost/probe:1, args: [ serve ], volumeMounts: [ { name: data, mountPath: /data } ] } ]
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: firm }
spec:
  selector: { matchLabels: { app: firm } }
  template:
    metadata: { labels: { app: firm } }
    spec:
      nodeSelector: { kubernetes.io/hostname: w-1 }
      terminationGracePeriodSeconds: 0
      containers: [ { name: main, image: localhost/probe:1, args: [ serve ] } ]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: firm }
spec: { minAvailable: 1, selector: { matchLabels: { app: firm } } }
`

// unready never becomes ready. The budget of firm counts its pod, and so expects two healthy pods
// of which only one is required: the budget is short of healthy pods only for now.
const unready = `
apiVersion: apps/v1
kind: Deployment
metadata: { name: unready }
spec:
  selector: { matchLabels: { app: firm, is: unready } }
  template:
    metadata: { labels: { app: firm, is: unready } }
    spec:
      nodeSelector: { kubernetes.io/hostname: w-2 }
      terminationGracePeriodSeconds: 0
      containers: [ { name: main, image: localhost/probe:1, args: [ serve ], readinessProbe: { httpGet: { port: 9 }, periodSeconds: 1 } } ]
`

// Without the flags that allow it, a drain deletes no pod permanently: the command fails before
// anything changes. A node whose kubelet is stopped does not block a change.
func TestDrain(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(1, 2, initialLabels)
	g.run("apply")
	g.checkRegistration()
	g.runOn("cp-1", "cat > /root/undrainable.yaml <<'EOF'\n"+undrainable+"\nEOF\n"+admin+"apply -f /root/undrainable.yaml")
	g.waitForOutput(time.Minute, "cp-1", admin+"get pods -o jsonpath='{.items[*].status.containerStatuses[*].ready}'", "true true true")
	g.waitForOutput(time.Minute, "cp-1", admin+"get poddisruptionbudget firm -o jsonpath='{.status.currentHealthy} {.status.expectedPods}'", "1 1")

	g.writeHive(1, 2, initialLabels+"settings.kubelet.maxPods = 77; ")
	before := g.nodeStates("cp-1", "w-1", "w-2")
	for _, args := range [][]string{{"plan"}, {"apply"}, {"reboot", "--on", "w-1", "--yes"}, {"destroy", "--on", "w-1", "--yes"}} {
		began := time.Now()
		code, out, diag := g.try(args...)
		if took := time.Since(began); code != 8 || took > time.Minute {
			t.Errorf("%s: exit code %d after %v", args[0], code, took)
		}
		for _, want := range []string{
			"w-1: drain: default/debug is a bare pod",
			"default/cache-", "has data on the node that the drain deletes: emptyDir data",
			"default/firm-", "cannot be evicted: PodDisruptionBudget default/firm allows 0 disruptions (1 of 1 pods must be healthy, and 1 are)",
			"--drain-delete bare-pods and --drain-delete local-data", "--no-drain",
		} {
			if !strings.Contains(diag, want) {
				t.Errorf("%s: %q is not in\n%s", args[0], want, diag)
			}
		}
		if args[0] == "plan" && !strings.Contains(out, "w-1: the drain would be refused:") {
			t.Errorf("plan: %s", out)
		}
		if strings.Contains(diag, "kubectl") {
			t.Errorf("%s: a command line in the message:\n%s", args[0], diag)
		}
	}
	g.checkUncordoned("cp-1", "w-1", "w-2")
	if now := g.nodeStates("cp-1", "w-1", "w-2"); now != before {
		t.Errorf("commands that were refused have changed nodes: from\n%s\nto\n%s", before, now)
	}

	// If a budget is short of healthy pods only for now, the drain waits for it, and reports this.
	g.runOn("cp-1", "cat > /root/unready.yaml <<'EOF'\n"+unready+"\nEOF\n"+admin+"apply -f /root/unready.yaml && "+
		admin+"delete pod debug --now && "+admin+"delete --wait=false deployment cache")
	g.waitForOutput(2*time.Minute, "cp-1", admin+"get pods -l app=cache -o name && echo none", "none")
	g.waitForOutput(time.Minute, "cp-1", admin+"get poddisruptionbudget firm -o jsonpath='{.status.currentHealthy} {.status.expectedPods}'", "1 2")
	allow := func() {
		if out, err := g.tryOn("cp-1", admin+"delete poddisruptionbudget firm"); err != nil {
			t.Errorf("delete the budget: %v\n%s", err, out)
		}
	}
	if !g.runUntil("waits for PodDisruptionBudget default/firm", allow, "apply", "--json", "--on", "w-1") {
		t.Error("the drain does not report what it waits for")
	}
	g.runOn("cp-1", admin+"delete --wait=false deployment firm unready")
	g.waitForOutput(2*time.Minute, "cp-1", admin+"get pods -l app=firm -o name && echo none", "none")

	// With these flags the drain deletes the pods.
	g.runOn("cp-1", admin+"apply -f /root/undrainable.yaml && "+admin+"delete poddisruptionbudget firm")
	g.waitForOutput(time.Minute, "cp-1", admin+"get pod debug -o jsonpath='{.status.phase}'", "Running")
	g.writeHive(1, 2, initialLabels+"settings.kubelet.maxPods = 78; ")
	_, out, _ := g.try("plan", "--drain-delete", "bare-pods,local-data")
	if !strings.Contains(out, "w-1: the drain would delete:") {
		t.Errorf("plan: %s", out)
	}
	if code, _, diag := g.try("apply", "--drain-delete", "bare-pods,local-data"); code != 0 || !strings.Contains(diag, "w-1: the drain deletes default/debug, which is a bare pod") {
		t.Errorf("apply: exit code %d\n%s", code, diag)
	}
	if got := g.runOn("cp-1", admin+"get pods -o name | grep -c debug; true"); got != "0" {
		t.Error("the bare pod is still there")
	}
	g.runOn("cp-1", admin+"delete deployment cache firm")

	g.changeNodeWithStoppedKubelet()
}

// changeNodeWithStoppedKubelet stops a node's kubelet, and checks that apply starts it, and that a change of the node
// is applied without a drain.
func (g *guestCluster) changeNodeWithStoppedKubelet() {
	g.Helper()
	g.runOn("w-1", "systemctl stop kubelet")
	// The API still reports the node as Ready; the check at the end of apply finds the stopped kubelet.
	if code, _, diag := g.try("apply"); code != 0 || !strings.Contains(diag, "w-1: kubelet.service is stopped; nixbench starts it") {
		g.Errorf("apply with a stopped kubelet: exit code %d\n%s", code, diag)
	}
	g.runOn("w-1", "systemctl stop kubelet")
	g.writeHive(1, 2, initialLabels+"settings.kubelet.maxPods = 79; ")
	began := time.Now()
	code, _, diag := g.try("apply")
	if took := time.Since(began); code != 0 || took > 150*time.Second || !strings.Contains(diag, "kubelet.service is stopped") {
		g.Errorf("a change of a node with a stopped kubelet: exit code %d after %v\n%s", code, took, diag)
	}
	g.checkUncordoned("cp-1", "w-1", "w-2")
	g.waitForMaxPods("cp-1=79 w-1=79 w-2=79")
}
