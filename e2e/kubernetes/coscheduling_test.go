package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A second scheduler with coscheduling starts the pods of a gang together, or none of them. A running cluster gets this scheduler,
// and `check` names it when it does not run.
func TestCoscheduling(t *testing.T) {
	t.Parallel()
	g := newGuestCluster(t, "--kubernetes-part", "scheduler-plugins-v0.34.7")
	g.writeHive(1, 2, "")
	g.run("apply")

	const scheduler = "schedulers.gangs.coscheduling.enable = true;" // the machines' image contains its image
	g.writeHive(1, 2, scheduler)
	began := time.Now()
	g.run("apply")
	if got := g.runOn("cp-1", admin+`-n kube-system get deployment gangs -o jsonpath='{.status.conditions[?(@.type=="Available")].status}'`); got != "True" {
		t.Errorf("apply has not waited for the scheduler: Available is %q", got)
	}
	t.Logf("a second scheduler in a running cluster: %.1f s", time.Since(began).Seconds())

	// The workers have six places together. A resource of its own does not depend on the processors of this machine.
	for _, node := range []string{"w-1", "w-2"} {
		g.runOn("cp-1", admin+"patch node "+node+` --subresource=status --type=merge -p '{"status":{"capacity":{"example.org/place":"3"}}}'`)
		g.waitForOutput(30*time.Second, "cp-1", admin+"get node "+node+` -o jsonpath='{.status.allocatable.example\.org/place}'`, "3")
	}
	const scheduled = admin + `get pods -l scheduling.x-k8s.io/pod-group=%s -o json | jq -r '[ .items[] | .spec.nodeName // "none" ] | sort | unique | join(" ")'`
	g.createGang("fits", 4)
	g.waitForOutput(60*time.Second, "cp-1", fmt.Sprintf(scheduled, "fits"), "w-1 w-2")
	g.waitForOutput(60*time.Second, "cp-1", admin+"get job fits -o jsonpath='{.status.ready}'", "4")

	// Two pods of this gang would fit beside the pods of the first gang, but not all six.
	g.createGang("large", 6)
	const reason = admin + `get pods -l scheduling.x-k8s.io/pod-group=large -o json | jq -r '[ .items[] | select(.status.conditions[]? | .type == "PodScheduled" and .status == "False" and .reason == "Unschedulable") ] | length'`
	g.waitForOutput(60*time.Second, "cp-1", reason, "6")
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		if got := g.runOn("cp-1", fmt.Sprintf(scheduled, "large")); got != "none" {
			t.Fatalf("a gang that does not fit has pods on %q", got)
		}
	}
	// The default scheduler places the same pods without regard to the gang, so the room was there for some.
	g.createJob("control", 6, "default-scheduler")
	g.waitForOutput(60*time.Second, "cp-1", admin+"get job control -o jsonpath='{.status.ready}'", "2")
	g.runOn("cp-1", admin+"delete job control fits --wait --cascade=foreground")
	// Now all six fit. The scheduler looks at pods that it could not place again after five minutes at the latest.
	g.waitForOutput(330*time.Second, "cp-1", admin+"get job large -o jsonpath='{.status.ready}'", "6")

	// The scheduler keeps its lease and its setting when it is changed; without a pod it is missed.
	g.writeHive(1, 2, scheduler+"schedulers.gangs.settings.parallelism = 4;")
	g.run("apply")
	g.waitForOutput(20*time.Second, "cp-1", admin+"-n kube-system get configmap gangs -o jsonpath='{.data.config\\.json}' | jq .parallelism", "4")
	g.runOn("cp-1", admin+"-n kube-system scale deployment gangs --replicas=0")
	g.runOn("cp-1", admin+"-n kube-system delete deployment gangs")
	if code, _, diag := g.try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "deployment.apps/gangs is Available: not after") || !strings.Contains(diag, "it does not exist") {
		t.Errorf("check without the scheduler: exit code %d", code)
	}
}

// createGang creates a PodGroup, and a Job with that many pods, whose scheduler is gangs.
func (g *guestCluster) createGang(name string, pods int) {
	g.Helper()
	g.runOn("cp-1", fmt.Sprintf(admin+`apply -f - <<'END'
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: { name: %[1]s, namespace: default }
spec: { minMember: %[2]d }
END`, name, pods))
	g.createJob(name, pods, "gangs")
}

// createJob creates a Job with that many pods, which need a place each and run until they are deleted.
func (g *guestCluster) createJob(name string, pods int, scheduler string) {
	g.Helper()
	g.runOn("cp-1", fmt.Sprintf(admin+`apply -f - <<'END'
apiVersion: batch/v1
kind: Job
metadata: { name: %[1]s, namespace: default }
spec:
  parallelism: %[2]d
  completions: %[2]d
  template:
    metadata: { labels: { scheduling.x-k8s.io/pod-group: %[1]s } }
    spec:
      schedulerName: %[3]s
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
        - { name: main, image: "localhost/probe:1", command: [ "/probe", "serve" ], resources: { limits: { example.org/place: 1 } } }
END`, name, pods, scheduler))
}
