package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// precious is work on w-1 that a drain would delete for good, and work that a budget never lets go.
const precious = `
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

// lame never becomes ready; together with firm it is enough for the budget, some day.
const lame = `
apiVersion: apps/v1
kind: Deployment
metadata: { name: lame }
spec:
  selector: { matchLabels: { app: firm, is: lame } }
  template:
    metadata: { labels: { app: firm, is: lame } }
    spec:
      nodeSelector: { kubernetes.io/hostname: w-2 }
      terminationGracePeriodSeconds: 0
      containers: [ { name: main, image: localhost/probe:1, args: [ serve ], readinessProbe: { httpGet: { port: 9 }, periodSeconds: 1 } } ]
`

// A drain deletes nothing for good without leave, says so before anything changes, and a member whose
// kubelet is dead holds up nobody.
func TestDraining(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.hive(1, 2, begin)
	g.run("apply")
	g.registered()
	g.on("cp-1", "cat > /root/precious.yaml <<'EOF'\n"+precious+"\nEOF\n"+admin+"apply -f /root/precious.yaml")
	g.wait(time.Minute, "cp-1", admin+"get pods -o jsonpath='{.items[*].status.containerStatuses[*].ready}'", "true true true")
	g.wait(time.Minute, "cp-1", admin+"get poddisruptionbudget firm -o jsonpath='{.status.currentHealthy} {.status.expectedPods}'", "1 1")

	g.hive(1, 2, begin+"settings.kubelet.maxPods = 77; ")
	before := g.untouched("cp-1", "w-1", "w-2")
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
			"--drain-bare-pods and --drain-local-data", "--no-drain",
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
	g.atWork("cp-1", "w-1", "w-2")
	if now := g.untouched("cp-1", "w-1", "w-2"); now != before {
		t.Errorf("something has changed: from\n%s\nto\n%s", before, now)
	}

	// A budget that is only short of pods for now is waited for, and said.
	g.on("cp-1", "cat > /root/lame.yaml <<'EOF'\n"+lame+"\nEOF\n"+admin+"apply -f /root/lame.yaml && "+
		admin+"delete pod debug --now && "+admin+"delete deployment cache && "+admin+"wait --for=delete pod -l app=cache --timeout=60s")
	g.wait(time.Minute, "cp-1", admin+"get poddisruptionbudget firm -o jsonpath='{.status.currentHealthy} {.status.expectedPods}'", "1 2")
	stop := time.AfterFunc(40*time.Second, func() { _, _ = g.ask("cp-1", admin+"delete poddisruptionbudget firm") })
	defer stop.Stop()
	_, out, diag := g.try("apply", "--json", "--on", "w-1")
	said := false
	for line := range strings.Lines(out + diag) {
		var e struct{ Event, Phase, Node, Text string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "node-progress" && e.Phase == "drain" && strings.Contains(e.Text, "waits for PodDisruptionBudget default/firm") {
			said = true
		}
	}
	if !said {
		t.Error("the drain does not say what it waits for")
	}
	g.on("cp-1", admin+"delete deployment firm lame && "+admin+"wait --for=delete pod -l app=firm --timeout=60s")

	// With leave, it deletes.
	g.on("cp-1", admin+"apply -f /root/precious.yaml && "+admin+"delete poddisruptionbudget firm")
	g.wait(time.Minute, "cp-1", admin+"get pod debug -o jsonpath='{.status.phase}'", "Running")
	g.hive(1, 2, begin+"settings.kubelet.maxPods = 78; ")
	_, out, _ = g.try("plan", "--drain-bare-pods", "--drain-local-data")
	if !strings.Contains(out, "w-1: the drain would delete:") {
		t.Errorf("plan: %s", out)
	}
	if code, _, diag := g.try("apply", "--drain-bare-pods", "--drain-local-data"); code != 0 || !strings.Contains(diag, "w-1: the drain deletes default/debug, which is a bare pod") {
		t.Errorf("apply: exit code %d\n%s", code, diag)
	}
	if got := g.on("cp-1", admin+"get pods -o name | grep -c debug; true"); got != "0" {
		t.Error("the bare pod is still there")
	}
	g.on("cp-1", admin+"delete deployment cache firm")

	g.deadKubelet()
}

// deadKubelet wants a node repaired by the change that it was in the way of.
func (g *ground) deadKubelet() {
	g.Helper()
	g.on("w-1", "systemctl stop kubelet")
	// While the API still calls the node Ready, the check at the end sees it.
	if code, _, diag := g.try("apply"); code != 9 || !strings.Contains(diag, "w-1: its kubelet is stopped") {
		g.Errorf("apply with a stopped kubelet: exit code %d\n%s", code, diag)
	}
	g.hive(1, 2, begin+"settings.kubelet.maxPods = 79; ")
	began := time.Now()
	code, _, diag := g.try("apply")
	if took := time.Since(began); code != 0 || took > 150*time.Second || !strings.Contains(diag, "its kubelet is stopped") {
		g.Errorf("a change of a node with a dead kubelet: exit code %d after %v\n%s", code, took, diag)
	}
	g.atWork("cp-1", "w-1", "w-2")
	g.maxPods("cp-1=79 w-1=79 w-2=79")
}
