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

// web is a Service with two pods on two workers; its PodDisruptionBudget requires one of them.
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
          # The pod still receives requests until every node has removed it from the Service.
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

// startRequests deploys web, and sends requests to its Service from the control plane until the test ends.
func (g *guestCluster) startRequests() {
	g.Helper()
	g.runOn("cp-1", "cat > /root/web.yaml <<'EOF'\n"+web+"\nEOF\n"+admin+"apply -f /root/web.yaml && "+admin+"rollout status deployment/web --timeout=60s")
	address := g.runOn("cp-1", admin+"get service web -o jsonpath={.spec.clusterIP}")
	// kube-proxy on the control plane may not have the Service's rules yet.
	g.waitForOutput(20*time.Second, "cp-1", "curl -s -o /dev/null --noproxy '*' --max-time 1 http://"+address+"/ && echo yes", "yes")
	g.runOn("cp-1", `systemd-run -q --unit requests sh -c 'while :; do
  if curl -s -o /dev/null --noproxy "*" --max-time 3 http://`+address+`/; then echo ok; else echo "failed ($?) $(date +%T.%N)"; fi >> /root/requests
  sleep 0.05
done'`)
	g.waitForOutput(30*time.Second, "cp-1", "test $(grep -c ok /root/requests) -ge 50 && echo yes", "yes")
}

// checkRequests checks that no request has failed since the last call, and that at least 50 were answered.
func (g *guestCluster) checkRequests(during string) {
	g.Helper()
	out := g.runOn("cp-1", `echo $(grep -c ok /root/requests) $(grep -c failed /root/requests); grep failed /root/requests | head -n 5; : > /root/requests`)
	counts, failures, _ := strings.Cut(out, "\n")
	var ok, failed int
	if _, err := fmt.Sscan(counts, &ok, &failed); err != nil || ok < 50 {
		g.Errorf("%s: numbers of requests: %q", during, out)
	}
	g.Logf("%s: %d requests answered, %d failed", during, ok, failed)
	if failed > 0 {
		g.Errorf("%s: %d of %d requests failed:\n%s", during, failed, ok+failed, failures)
	}
}

// checkUncordoned checks that these nodes are Ready, that none is cordoned, and that no annotation
// of a drain is left.
func (g *guestCluster) checkUncordoned(nodes ...string) {
	g.Helper()
	g.checkNodes(strings.Join(nodes, " Ready;") + " Ready;")
	if got := g.runOn("cp-1", admin+`get nodes -o jsonpath='{.items[*].metadata.annotations.nixbench\.dev/drained}{.items[*].spec.unschedulable}'`); got != "" {
		g.Errorf("nodes are still marked as drained or cordoned: %q", got)
	}
}

func (g *guestCluster) waitForMaxPods(want string) {
	g.Helper()
	// Kubelets report their status every ten seconds.
	g.waitForOutput(30*time.Second, "cp-1", admin+`get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.capacity.pods} {end}'`, want)
}

// Settings of the tests below.
const (
	firstSettings  = "controllerManager.extraArgs.node-monitor-grace-period = \"16s\"; "
	secondSettings = firstSettings + "settings.kubelet.maxPods = 77; audit.enable = true; apiServer.extraArgs.v = 3; "
	thirdSettings  = firstSettings + "settings.kubelet.maxPods = 78; audit.enable = true; apiServer.extraArgs.v = 3; "
)

// A cluster changes while its services answer requests: changed settings, labels and taints.
func TestRollingChange(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(1, 2, firstSettings+initialLabels)
	g.run("apply")
	g.checkRegistration()
	g.startRequests()
	g.checkRequests("before any change")

	// A changed setting is rolled out, and no request fails.
	g.writeHive(1, 2, secondSettings)
	began := time.Now()
	_, out, diag := g.try("apply", "--json")
	t.Logf("rolled out in %.1f s", time.Since(began).Seconds())
	g.checkRequests("a rolling change")
	t.Logf("restarts:\n%s", g.runOn("cp-1", admin+"-n kube-system get pods -l tier=control-plane -o custom-columns=NAME:.metadata.name,RESTARTS:.status.containerStatuses[0].restartCount"))
	g.checkOrder(out+diag, "cp-1", "w-1", "w-2")
	g.checkUncordoned("cp-1", "w-1", "w-2")
	g.waitForMaxPods("cp-1=77 w-1=77 w-2=77")
	g.waitForOutput(time.Minute, "cp-1", "ps -C kube-apiserver -o args= | grep -o -- ' --v=3' | tr -d ' '; test -s /var/log/kubernetes/audit/audit.log && echo yes", "--v=3\nyes")
	before := g.nodeStates("cp-1", "w-1", "w-2")
	if _, _, diag := g.try("apply"); strings.Count(diag, "unchanged") < 3 || g.nodeStates("cp-1", "w-1", "w-2") != before {
		t.Errorf("a second apply is not a no-op:\n%s", diag)
	}

	g.changeLabelsAndTaints(secondSettings)
	g.checkRequests("other labels and taints")
}

// A cluster is changed by a run that is killed, a rollback, a refused upgrade, and a reboot, and a kubelet is stopped. Its
// services answer requests during the change.
func TestInterruptedChange(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t)
	g.writeHive(1, 2, secondSettings)
	g.run("apply")
	g.startRequests()
	g.checkRequests("before any change")

	// The run is killed while a worker is drained.
	g.writeHive(1, 2, thirdSettings)
	g.killApplyDuringDrain("w-1")
	g.run("apply")
	g.checkRequests("a run that was killed, and the next")
	g.checkUncordoned("cp-1", "w-1", "w-2")
	g.waitForMaxPods("cp-1=78 w-1=78 w-2=78")

	// Roll back one node.
	g.run("rollback", "--on", "w-1", "--yes")
	g.waitForOutput(time.Minute, "cp-1", admin+`get node w-1 -o jsonpath='{.status.capacity.pods}'`, "77")
	g.run("check")
	g.waitForMaxPods("cp-1=78 w-1=77 w-2=78")
	g.run("apply")
	g.waitForMaxPods("cp-1=78 w-1=78 w-2=78")

	g.checkSkewRefused(thirdSettings)
	g.checkStoppedKubelet()

	// A reboot deletes the secrets in /run; the cluster works without them.
	// Nodes reboot one at a time, each drained.
	began := time.Now()
	code, out, diag := g.try("reboot", "--yes", "--json")
	if code != 0 {
		t.Fatalf("reboot: exit code %d\n%s", code, diag)
	}
	g.checkOrder(out+diag, "cp-1", "w-1", "w-2")
	g.checkUncordoned("cp-1", "w-1", "w-2")
	g.run("check", "--deep", "--timeout", "4m")
	g.checkUncordoned("cp-1", "w-1", "w-2")
	t.Logf("rebooted, and healthy after %.1f s", time.Since(began).Seconds())
}

// checkOrder checks in a run's events that these nodes changed one after the other, and that each
// was drained, activated and uncordoned. `=NODE` was activated by an earlier run, and is only uncordoned.
func (g *guestCluster) checkOrder(events string, nodes ...string) {
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
		if activated, ok := strings.CutPrefix(node, "="); ok {
			want = append(want, activated+" drain")
			continue
		}
		want = append(want, node+" drain", node+" activate", node+" drain")
	}
	if got := slices.Compact(steps); !slices.Equal(got, want) {
		g.Errorf("steps: %q, want %q", got, want)
	}
}

// killApplyDuringDrain kills an apply while the node is drained.
func (g *guestCluster) killApplyDuringDrain(node string) {
	g.Helper()
	g.killApplyWhen("cp-1", admin+"get node "+node+" -o jsonpath={.spec.unschedulable}", "true")
}

// killApplyWhen kills an apply as soon as state prints want on the node and every condition succeeds
// there. state must still print want after the kill, which proves that apply was killed in time.
func (g *guestCluster) killApplyWhen(node, state, want string, conditions ...string) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), 11*time.Minute)
	defer cancel()
	cmd := g.command(ctx, "apply")
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	g.waitForOutput(10*time.Minute, node, strings.Join(append(slices.Clone(conditions), state), " && "), want)
	if err := cmd.Process.Kill(); err != nil {
		g.Fatal(err)
	}
	_ = cmd.Wait()
	if got := g.runOn(node, state); got != want {
		g.Errorf("apply was killed too late: %s: %q, want %q", state, got, want)
	}
}

// checkSkewRefused checks that the node's own check, which also protects it from other tools than
// nixbench, refuses a release to which kubeadm cannot upgrade.
func (g *guestCluster) checkSkewRefused(settings string) {
	g.Helper()
	before := g.nodeStates("cp-1", "w-1", "w-2")
	g.writeHive(1, 2, settings+`version = "1.36.0"; package = pkgs.kubernetes // { version = "1.36.0"; };`)
	_, _, diag := g.try("apply", "dry-activate", "--on", "cp-1")
	if !strings.Contains(diag, "from one minor release to the next only") || !strings.Contains(diag, "1.35") {
		g.Errorf("an upgrade that skips a release: %s", diag)
	}
	if g.nodeStates("cp-1", "w-1", "w-2") != before {
		g.Error("a refused upgrade has changed nodes")
	}
	g.writeHive(1, 2, settings)
}

// checkStoppedKubelet checks that `nixbench check` shows the logs of a node that is not Ready.
func (g *guestCluster) checkStoppedKubelet() {
	g.Helper()
	g.runOn("w-1", "systemctl stop kubelet")
	g.waitForOutput(2*time.Minute, "cp-1", admin+`get node w-1 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`, "Unknown")
	code, _, diag := g.try("check", "--timeout", "5s")
	if code != 9 {
		g.Errorf("check with a stopped kubelet: exit code %d", code)
	}
	for _, want := range []string{"not Ready: w-1", "  kubelet: ", "  nixbench-kubernetes: ready"} {
		if !strings.Contains(diag, want) {
			g.Errorf("%q is not in the output of check:\n%s", want, diag)
		}
	}
	g.runOn("w-1", "systemctl start kubelet")
	g.run("check")
}
