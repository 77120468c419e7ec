package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// web is two pods on two workers behind a Service, of which one may be missing.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [ { topologyKey: kubernetes.io/hostname, labelSelector: { matchLabels: { app: web } } } ] } }
      containers:
        - name: web
          image: localhost/probe:1
          args: [ serve ]
          readinessProbe: { httpGet: { port: 8080 }, periodSeconds: 1 }
          # Requests still come until every node has heard that it goes.
          lifecycle: { preStop: { sleep: { seconds: 5 } } }
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: web }
spec: { minAvailable: 1, selector: { matchLabels: { app: web } } }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec: { selector: { app: web }, ports: [ { port: 80, targetPort: 8080 } ] }
`

// visitors asks the Service from the control plane, all the time.
func (g *ground) visitors() {
	g.Helper()
	g.on("cp-1", "cat > /root/web.yaml <<'EOF'\n"+web+"\nEOF\n"+admin+"apply -f /root/web.yaml && "+admin+"rollout status deployment/web --timeout=60s")
	address := g.on("cp-1", admin+"get service web -o jsonpath={.spec.clusterIP}")
	// kube-proxy there may not have heard of all of it yet.
	g.wait(20*time.Second, "cp-1", "curl -s -o /dev/null --noproxy '*' --max-time 1 http://"+address+"/ && echo yes", "yes")
	g.on("cp-1", `systemd-run -q --unit visitors sh -c 'while :; do
  if curl -s -o /dev/null --noproxy "*" --max-time 3 http://`+address+`/; then echo ok; else echo "failed ($?) $(date +%T.%N)"; fi >> /root/visits
  sleep 0.05
done'`)
	g.wait(20*time.Second, "cp-1", "test $(grep -c ok /root/visits) -gt 20 && echo yes", "yes")
}

// visited counts requests since the last time.
func (g *ground) visited(during string) {
	g.Helper()
	out := g.on("cp-1", `echo $(grep -c ok /root/visits) $(grep -c failed /root/visits); grep failed /root/visits | head -n 5; : > /root/visits`)
	counts, failures, _ := strings.Cut(out, "\n")
	var ok, failed int
	if _, err := fmt.Sscan(counts, &ok, &failed); err != nil || during != "nothing" && ok < 50 {
		g.Errorf("%s: visits: %q", during, out)
	}
	g.Logf("%s: %d requests answered, %d failed", during, ok, failed)
	if failed > 0 {
		g.Errorf("%s: %d of %d requests failed:\n%s", during, failed, ok+failed, failures)
	}
}

// atWork wants these nodes, and nobody cordoned.
func (g *ground) atWork(nodes ...string) {
	g.Helper()
	g.nodes(strings.Join(nodes, " Ready;") + " Ready;")
	if got := g.on("cp-1", admin+`get nodes -o jsonpath='{.items[*].metadata.annotations.nixbench\.dev/drained}{.items[*].spec.unschedulable}'`); got != "" {
		g.Errorf("marks of draining are left: %q", got)
	}
}

func (g *ground) maxPods(want string) {
	g.Helper()
	// Kubelets say so every ten seconds.
	g.wait(30*time.Second, "cp-1", admin+`get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.capacity.pods} {end}'`, want)
}

// A living cluster changes while it is used; what goes wrong is mended by the next run.
func TestLivingCluster(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	const (
		first  = "controllerManager.extraArgs.node-monitor-grace-period = \"16s\"; "
		second = first + "settings.kubelet.maxPods = 77; audit.enable = true; apiServer.extraArgs.v = 3; "
		third  = first + "settings.kubelet.maxPods = 78; audit.enable = true; apiServer.extraArgs.v = 3; "
	)
	g.hive(1, 2, first+begin)
	g.run("apply")
	g.registered()
	g.visitors()
	g.visited("nothing")

	// A changed setting is rolled through, without anybody noticing.
	g.hive(1, 2, second)
	began := time.Now()
	_, out, diag := g.try("apply", "--json")
	t.Logf("rolled through in %.1f s", time.Since(began).Seconds())
	g.visited("a rolling change")
	t.Logf("restarts:\n%s", g.on("cp-1", admin+"-n kube-system get pods -l tier=control-plane -o custom-columns=NAME:.metadata.name,RESTARTS:.status.containerStatuses[0].restartCount"))
	g.order(out+diag, "cp-1", "w-1", "w-2")
	g.atWork("cp-1", "w-1", "w-2")
	g.maxPods("cp-1=77 w-1=77 w-2=77")
	g.wait(time.Minute, "cp-1", "ps -C kube-apiserver -o args= | grep -o -- ' --v=3' | tr -d ' '; test -s /var/log/kubernetes/audit/audit.log && echo yes", "--v=3\nyes")
	before := g.untouched("cp-1", "w-1", "w-2")
	if _, _, diag := g.try("apply"); strings.Count(diag, "unchanged") < 3 || g.untouched("cp-1", "w-1", "w-2") != before {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	g.marks(second)
	g.visited("other labels and taints")

	// Killed while a worker has no work.
	g.hive(1, 2, third)
	g.killDrained("w-1")
	g.run("apply")
	g.visited("a run that was killed, and the next")
	g.atWork("cp-1", "w-1", "w-2")
	g.maxPods("cp-1=78 w-1=78 w-2=78")

	// Back again, on one node.
	g.run("rollback", "--on", "w-1", "--yes")
	g.wait(time.Minute, "cp-1", admin+`get node w-1 -o jsonpath='{.status.capacity.pods}'`, "77")
	g.run("check")
	g.maxPods("cp-1=78 w-1=77 w-2=78")
	g.run("apply")
	g.maxPods("cp-1=78 w-1=78 w-2=78")

	g.skew(third)
	g.stoppedKubelet()

	// After a reboot there are no secrets in /run, and none are needed.
	// Nodes go one by one, each without its work.
	began = time.Now()
	code, out, diag := g.try("reboot", "--yes", "--json")
	if code != 0 {
		t.Fatalf("reboot: exit code %d\n%s", code, diag)
	}
	g.order(out+diag, "cp-1", "w-1", "w-2")
	g.atWork("cp-1", "w-1", "w-2")
	g.run("check", "--deep", "--timeout", "4m")
	g.atWork("cp-1", "w-1", "w-2")
	t.Logf("rebooted, and all well after %.1f s", time.Since(began).Seconds())
}

// order wants these nodes one after the other, each without work. `=NODE` is through already, and
// only gets its work back.
func (g *ground) order(events string, nodes ...string) {
	g.Helper()
	var steps []string
	for line := range strings.Lines(events) {
		var e struct{ Event, Phase, Node, Text string }
		if json.Unmarshal([]byte(line), &e) != nil || e.Phase != "drain" && e.Phase != "activate" || !strings.HasPrefix(e.Event, "node-") || e.Event == "node-log" {
			continue
		}
		steps = append(steps, e.Node+" "+e.Phase)
	}
	var want []string
	for _, node := range nodes {
		if through, ok := strings.CutPrefix(node, "="); ok {
			want = append(want, through+" drain")
			continue
		}
		want = append(want, node+" drain", node+" activate", node+" drain")
	}
	if got := slices.Compact(steps); !slices.Equal(got, want) {
		g.Errorf("steps: %q, want %q", got, want)
	}
}

// killDrained kills an apply while the node is drained.
func (g *ground) killDrained(node string) {
	g.Helper()
	g.killWhen("cp-1", admin+"get node "+node+" -o jsonpath={.spec.unschedulable}", "true")
}

// killWhen kills an apply as soon as state prints want on the node and every condition succeeds
// there. After the kill state must print want still: the apply was killed in time.
func (g *ground) killWhen(node, state, want string, conditions ...string) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), 11*time.Minute)
	defer cancel()
	cmd := g.command(ctx, "apply")
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	g.wait(10*time.Minute, node, strings.Join(append(slices.Clone(conditions), state), " && "), want)
	if err := cmd.Process.Kill(); err != nil {
		g.Fatal(err)
	}
	_ = cmd.Wait()
	if got := g.on(node, state); got != want {
		g.Errorf("it was killed too late: %s: %q", state, got)
	}
}

// skew wants a release that kubeadm cannot go to refused by the node, too: others than
// nixbench switch it.
func (g *ground) skew(settings string) {
	g.Helper()
	before := g.untouched("cp-1", "w-1", "w-2")
	g.hive(1, 2, settings+`version = "1.36.0"; package = pkgs.kubernetes // { version = "1.36.0"; };`)
	_, _, diag := g.try("apply", "dry-activate", "--on", "cp-1")
	if !strings.Contains(diag, "from one minor release to the next only") || !strings.Contains(diag, "1.35") {
		g.Errorf("a jump over a release: %s", diag)
	}
	if g.untouched("cp-1", "w-1", "w-2") != before {
		g.Error("a refused jump has touched nodes")
	}
	g.hive(1, 2, settings)
}

// stoppedKubelet wants the logs of a node that is not Ready.
func (g *ground) stoppedKubelet() {
	g.Helper()
	g.on("w-1", "systemctl stop kubelet")
	g.wait(2*time.Minute, "cp-1", admin+`get node w-1 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`, "Unknown")
	code, _, diag := g.try("check", "--timeout", "5s")
	if code != 9 {
		g.Errorf("check with a stopped kubelet: exit code %d", code)
	}
	for _, want := range []string{"not Ready: w-1", "  kubelet: ", "  nixbench-kubernetes: ready"} {
		if !strings.Contains(diag, want) {
			g.Errorf("%q is not in what check says:\n%s", want, diag)
		}
	}
	g.on("w-1", "systemctl start kubelet")
	g.run("check")
}
