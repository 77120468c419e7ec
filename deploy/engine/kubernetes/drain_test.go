package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

func quiet(_, _ string) {}

// isUncordon reports whether a command uncordons a node.
func isUncordon(argv []string) bool {
	return slices.Contains(argv, "patch") && strings.Contains(argv[len(argv)-1], `"unschedulable":false`)
}

// removeNode runs the steps of the engine for a node whose machine is removed.
func removeNode(t *testing.T, e *Engine, node string) error {
	if err := e.Drain(t.Context(), []string{node}, engine.DrainOptions{Removal: true}, quiet); err != nil {
		return err
	}
	return e.RemoveMember(t.Context(), node)
}

// A node that cannot be reached is removed from etcd and from the cluster without a reset.
func TestRemoveNode(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": node(true), "cp-2": controlPlane(false), "w-1": node(true)},
		down: map[string]string{"cp-2": "no route to host"}, etcd: etcdOfThree}
	e := c.engine("cp-1", "w-2") // cp-2 and w-1 have left the hive
	for _, name := range []string{"cp-2", "w-1"} {
		if err := removeNode(t, e, name); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.nodes) != 1 {
		t.Errorf("still registered: %v", c.nodes)
	}
	if got := c.did("etcdctl member remove"); len(got) != 1 || !strings.HasSuffix(got[0], "remove b2") {
		t.Errorf("removed from etcd: %q", got)
	}
	if got := c.did("kubectl drain"); len(got) != 1 || got[0] != "cp-1: kubectl drain w-1" {
		t.Errorf("drained: %q; pods of a machine that is gone cannot be waited for", got)
	}
	if got := c.did("nixbench-kubernetes-reset"); len(got) != 1 || got[0] != "w-1: nixbench-kubernetes-reset" {
		t.Errorf("reset: %q", got)
	}
}

// If etcd refuses the removal of a member, the node is not reset and its Node object is not deleted.
func TestRemoveMemberNeededForQuorum(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(false), "cp-3": controlPlane(true)},
		down: map[string]string{"cp-2": "no route to host"}, etcd: etcdOfThree,
		refuse: map[string]string{"etcdctl member remove": "etcdserver: unhealthy cluster"}}
	synctest.Test(t, func(t *testing.T) { // it is retried for a minute
		err := removeNode(t, c.engine("cp-1", "cp-2"), "cp-3")
		if err == nil || err.Error() != "cp-3: etcd: its member cannot be removed while another member is down; repair that one first: etcdserver: unhealthy cluster" {
			t.Error(err)
		}
	})
	if lost := append(c.did("nixbench-kubernetes-reset"), c.did("kubectl delete")...); len(lost) > 0 {
		t.Errorf("done all the same: %q", lost)
	}
	// Once etcd allows the removal, the etcd member is removed before the reset.
	c.refuse = nil
	delete(c.down, "cp-2")
	c.ran = nil
	if err := removeNode(t, c.engine("cp-1", "cp-2"), "cp-3"); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, line := range c.ran {
		for _, what := range []string{"kubectl drain", "member remove", "kubernetes-reset", "delete node"} {
			if strings.Contains(line, what) {
				order = append(order, what)
			}
		}
	}
	if got := strings.Join(order, ", "); got != "kubectl drain, member remove, kubernetes-reset, delete node" {
		t.Errorf("in the order %s", got)
	}
}

// The removal of an etcd member is retried while etcd may accept it later. A removal whose answer was lost is found in
// the list of members, and is not repeated.
func TestRemoveEtcdMemberRetries(t *testing.T) {
	for _, c := range []struct {
		name, refusal string
		removed       bool // although etcdctl failed
		tries         int
		err           string
	}{
		{"a member has just restarted", "etcdserver: unhealthy cluster", false, 2, ""},
		{"etcdctl's deadline has passed", "Error: context deadline exceeded", false, 2, ""},
		{"the answer is late", "Error: context deadline exceeded", true, 1, ""},
		{"the leader is late", "etcdserver: request timed out", false, 2, ""},
		{"etcd refuses for good", "etcdserver: permission denied", false, 1, "cp-3: etcd: etcdserver: permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true), "cp-3": controlPlane(true)}, etcd: etcdOfThree}
			e := fake.engine("cp-1", "cp-2")
			run, tries := e.Run, 0
			e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
				if slices.Contains(argv, "remove") {
					if tries++; tries == 1 {
						if c.removed {
							fake.etcd = etcdOfTwo
						}
						return nil, errors.New(c.refusal)
					}
				}
				return run(ctx, on, stdin, argv...)
			}
			err := e.RemoveMember(t.Context(), "cp-3")
			if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if tries != c.tries {
				t.Errorf("%d tries, want %d", tries, c.tries)
			}
		})
	}
}

// A reset that fails is reported after the Node object was deleted.
func TestResetFails(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, refuse: map[string]string{"nixbench-kubernetes-reset": "no space left"}}
	if err := removeNode(t, c.engine("cp-1"), "w-1"); err == nil || err.Error() != "w-1: reset: no space left" {
		t.Error(err)
	}
	if len(c.nodes) != 1 {
		t.Errorf("still registered: %v", c.nodes)
	}
}

// A node that an administrator has cordoned stays cordoned after a failed drain for removal.
func TestCordonStays(t *testing.T) {
	own := node(true)
	own["unschedulable"] = true
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": own}, refuse: map[string]string{"kubectl drain": "denied by a webhook"}}
	e := c.engine("cp-1", "w-1")
	for range 2 { // a run, and the next one
		if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{Removal: true}, quiet); err == nil {
			t.Fatal("it was drained")
		}
	}
	if err := e.Uncordon(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if m, _ := e.Members(t.Context()); own["unschedulable"] != true || m["w-1"].Drained {
		t.Errorf("w-1: %v", own)
	}
}

// A node can be Ready although its kubelet has exited during the switch.
func TestWaitReadyForKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		ready   bool
		kubelet kubelet
		want    string // empty: it is ready
	}{
		"not Ready":        {false, kubelet{"running", time.Hour, 0}, "it is not Ready: starting"},
		"well":             {true, kubelet{"running", time.Hour, 5 * time.Second}, ""},
		"restarted":        {true, kubelet{"running", 5 * time.Second, time.Second}, ""},
		"dies again":       {true, kubelet{"auto-restart", time.Second, 8 * time.Second}, "its kubelet is auto-restart"},
		"just born again":  {true, kubelet{"running", time.Second, 8 * time.Second}, "its kubelet has not reported since it was started"},
		"has lost the API": {true, kubelet{"running", time.Hour, 40 * time.Second}, "its kubelet has not reported for "},
	} {
		w := node(c.ready)
		w["unschedulable"], w["annotations"] = true, object{DrainedAnnotation: "2026-01-01T00:00:00Z"}
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, kubelets: map[string]kubelet{"w-1": c.kubelet}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := cluster.engine("cp-1", "w-1").WaitReady(ctx, "w-1", quiet)
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if w["unschedulable"] != true {
			t.Errorf("%s: the wait has uncordoned the node: %v", name, w)
		}
	}
}

// A control plane is not ready while its own API server does not answer.
func TestWaitReadyForOwnAPI(t *testing.T) {
	c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true)}, sick: map[string]string{"cp-2": "etcd failed"}}
	e := c.engine("cp-1", "cp-2")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.WaitReady(ctx, "cp-2", quiet); err == nil || !strings.Contains(err.Error(), "its own API server is not ready: cp-2: etcd failed") {
		t.Error(err)
	}
	c.sick = nil
	if err := e.WaitReady(t.Context(), "cp-2", quiet); err != nil {
		t.Error(err)
	}
}

// A node that has not joined yet is waited for if it is in the hive, and not waited for otherwise.
func TestWaitReadyForNewMember(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}}
	e := c.engine("cp-1", "w-1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.WaitReady(ctx, "w-1", quiet); err == nil || !strings.Contains(err.Error(), "it is not registered") {
		t.Error(err)
	}
	if err := e.WaitReady(t.Context(), "w-9", quiet); err != nil {
		t.Error(err)
	}
}

func podOf(name, controller string, more ...object) object {
	metadata := object{"namespace": "shop", "name": name, "labels": object{"app": strings.Split(name, "-")[0]}}
	if controller != "" {
		metadata["ownerReferences"] = []object{{"kind": "Other"}, {"kind": controller, "name": "own", "controller": true}}
	}
	p := object{"metadata": metadata, "spec": object{}, "status": object{"phase": "Running", "conditions": []object{{"type": "Ready", "status": "True"}}}}
	for _, m := range more {
		for key, value := range m {
			if inner, ok := value.(object); ok && p[key] != nil {
				for k, v := range inner {
					p[key].(object)[k] = v
				}
			} else {
				p[key] = value
			}
		}
	}
	return p
}

func volumes(of ...object) object { return object{"spec": object{"volumes": of}} }

func annotated(key, value string) object {
	return object{"metadata": object{"annotations": object{key: value}}}
}

func budget(name, app string, desired, expected, healthy int) object {
	return object{"metadata": object{"namespace": "shop", "name": name, "generation": 2},
		"spec":   object{"selector": object{"matchLabels": object{"app": app}}},
		"status": object{"observedGeneration": 2, "disruptionsAllowed": max(healthy-desired, 0), "desiredHealthy": desired, "expectedPods": expected, "currentHealthy": healthy}}
}

// The work that a drain would delete permanently.
func TestCheckDrain(t *testing.T) {
	data := object{"name": "data", "emptyDir": object{}}
	for name, c := range map[string]struct {
		pod  object
		want string // flags
	}{
		"of a ReplicaSet":             {podOf("web-1", "ReplicaSet", volumes(object{"name": "config", "configMap": object{}})), ""},
		"bare":                        {podOf("debug", ""), "--drain-delete bare-pods"},
		"bare, with data":             {podOf("debug", "", volumes(data)), "--drain-delete bare-pods --drain-delete local-data"},
		"bare, and over":              {podOf("debug", "", object{"status": object{"phase": "Succeeded"}}, volumes(data)), ""},
		"bare, and about to go":       {podOf("debug", "", object{"metadata": object{"deletionTimestamp": "2026-01-01T00:00:00Z"}}), ""},
		"the kubelet's own":           {podOf("etcd", "", annotated("kubernetes.io/config.mirror", "x")), ""},
		"of a DaemonSet":              {podOf("proxy", "DaemonSet", volumes(data)), ""},
		"with data":                   {podOf("cache-1", "ReplicaSet", volumes(data)), "--drain-delete local-data"},
		"of a Job, with data":         {podOf("job-1", "Job", volumes(data)), "--drain-delete local-data"},
		"with data in memory":         {podOf("cache-1", "ReplicaSet", volumes(object{"name": "shm", "emptyDir": object{"medium": "Memory"}})), ""},
		"an add-on of the cluster":    {podOf("metrics-1", "ReplicaSet", volumes(data), object{"spec": object{"priorityClassName": "system-cluster-critical"}}), ""},
		"declared safe":               {podOf("cache-1", "ReplicaSet", volumes(data), annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")), ""},
		"its volume is declared safe": {podOf("cache-1", "ReplicaSet", volumes(data), annotated("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "tmp, data")), ""},
		"another is declared safe":    {podOf("cache-1", "ReplicaSet", volumes(data), annotated("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "tmp")), "--drain-delete local-data"},
		"left by a check":             {podOf("server", "", object{"metadata": object{"namespace": "nixbench-check-abc"}}), ""},
	} {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, bound: map[string][]object{"w-1": {c.pod}}}
		flags := func(items []engine.DrainItem) string {
			var out []string
			for _, item := range items {
				out = append(out, item.Option)
			}
			return strings.Join(out, " ")
		}
		check := func(allowed ...string) engine.DrainCheck {
			all, err := cluster.engine("cp-1", "w-1").CheckDrain(t.Context(), []string{"w-1"}, engine.DrainOptions{Allowed: allowed})
			if err != nil {
				t.Error(err)
			}
			return all["w-1"]
		}
		if check := check(); flags(check.Blocked) != c.want || len(check.Deleted) > 0 {
			t.Errorf("%s: %+v, want %q", name, check, c.want)
		}
		if check := check(BarePods.Name, LocalData.Name); flags(check.Deleted) != c.want || len(check.Blocked) > 0 {
			t.Errorf("%s, allowed: %+v, want %q", name, check, c.want)
		}
	}
}

// By default a drain that would delete work permanently is refused, and the node stays uncordoned.
func TestDrainRefused(t *testing.T) {
	w := node(true)
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, bound: map[string][]object{"w-1": {podOf("debug", ""), podOf("web-1", "ReplicaSet")}}}
	e := c.engine("cp-1", "w-1")
	want := "w-1: drain: shop/debug is a bare pod: no controller recreates it on another node"
	err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet)
	var blocked *engine.BlockedError
	if !errors.As(err, &blocked) || err.Error() != want || blocked.Hint() != "with --drain-delete bare-pods the drain deletes it; or move it to another node yourself; --no-drain changes the nodes without a drain" {
		t.Errorf("%v", err)
	}
	if w["unschedulable"] == true || len(w["annotations"].(object)) > 0 || len(c.did("kubectl drain")) > 0 {
		t.Errorf("%v, %q", w, c.ran)
	}
	checks, err := e.CheckDrain(t.Context(), []string{"cp-1", "w-1", "w-9"}, engine.DrainOptions{})
	if err != nil || len(checks) != 2 || len(checks["w-1"].Blocked) != 1 || len(checks["cp-1"].Blocked) != 0 {
		t.Errorf("%+v, %v", checks, err)
	}
	if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{Allowed: []string{BarePods.Name}}, quiet); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.flags, "--force") || slices.Contains(c.flags, "--delete-emptydir-data") {
		t.Errorf("%q", c.flags)
	}
	// Without such pods, kubectl gets no permission to delete them.
	c.bound["w-1"] = []object{podOf("web-1", "ReplicaSet")}
	if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{Allowed: []string{BarePods.Name, LocalData.Name}}, quiet); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(c.flags, "--force") || slices.Contains(c.flags, "--delete-emptydir-data") {
		t.Errorf("%q", c.flags)
	}
}

var errRound = errors.New("error when evicting pods: global timeout reached: 5s")

// A budget that blocks a drain permanently is reported before any change, and ends a drain within seconds.
func TestBudgetBlocksPermanently(t *testing.T) {
	for name, c := range map[string]struct {
		budgets []object
		want    string // empty: it does not block the drain permanently
	}{
		"all are wanted":       {[]object{budget("web", "web", 2, 2, 2)}, "cannot be evicted: PodDisruptionBudget shop/web allows 0 disruptions (2 of 2 pods must be healthy, and 2 are)"},
		"one is not well":      {[]object{budget("web", "web", 1, 2, 1)}, ""},
		"one may go":           {[]object{budget("web", "web", 1, 2, 2)}, ""},
		"of other pods":        {[]object{budget("db", "db", 2, 2, 2)}, ""},
		"not counted yet":      {[]object{merged(budget("web", "web", 2, 2, 2), object{"status": object{"observedGeneration": 1}})}, ""},
		"two of them":          {[]object{budget("web", "web", 1, 2, 2), budget("all", "web", 1, 2, 2)}, "PodDisruptionBudget shop/web is one of several budgets of this pod"},
		"of all pods":          {[]object{merged(budget("all", "", 2, 2, 2), object{"spec": object{"selector": object{}}})}, "PodDisruptionBudget shop/all"},
		"of no pods":           {[]object{merged(budget("none", "", 2, 2, 2), object{"spec": object{"selector": nil}})}, ""},
		"by an expression":     {[]object{merged(budget("in", "", 2, 2, 2), object{"spec": object{"selector": object{"matchExpressions": []object{{"key": "app", "operator": "In", "values": []string{"web"}}}}}})}, "PodDisruptionBudget shop/in"},
		"not by an expression": {[]object{merged(budget("in", "", 2, 2, 2), object{"spec": object{"selector": object{"matchExpressions": []object{{"key": "app", "operator": "NotIn", "values": []string{"web"}}}}}})}, ""},
	} {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}}, budgets: c.budgets}
		checks, err := cluster.engine("cp-1", "w-1").CheckDrain(t.Context(), []string{"w-1"}, engine.DrainOptions{})
		blocked := checks["w-1"].Blocked
		if err != nil || (len(blocked) > 0) != (c.want != "") || len(blocked) > 0 && !strings.Contains(blocked[0].Reason, c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, checks, err, c.want)
		}
	}
	// A node that is not Ready is drained in spite of it: the change may be what repairs the node.
	for _, o := range []engine.DrainOptions{{}, {Removal: true}} {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(false)}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}},
			budgets: []object{budget("web", "web", 2, 2, 2)}}
		checks, err := cluster.engine("cp-1", "w-1").CheckDrain(t.Context(), []string{"w-1"}, o)
		if check, is := checks["w-1"]; err != nil || !is || len(check.Blocked) > 0 {
			t.Errorf("not Ready: %+v, %v", checks, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := node(true)
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}},
			budgets: []object{budget("web", "web", 2, 2, 2)}, drained: func(*cluster, string) error { return errRound }}
		begin := time.Now()
		err := c.engine("cp-1", "w-1").Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet)
		if took := time.Since(begin); err == nil || took > 10*time.Second || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "PodDisruptionBudget shop/web allows 0 disruptions") {
			t.Errorf("after %v: %v", took, err)
		}
		if w["unschedulable"] == true {
			t.Error("it is left cordoned")
		}
	})
}

// A drain of the whole cluster ignores disruption budgets, which would wait for pods that have no node to start on.
func TestDrainOfWholeCluster(t *testing.T) {
	for _, whole := range []bool{false, true} {
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}},
			budgets: []object{budget("web", "web", 2, 2, 2)}}
		e, o := c.engine("cp-1", "w-1"), engine.DrainOptions{Whole: whole}
		checks, err := e.CheckDrain(t.Context(), []string{"cp-1", "w-1"}, o)
		if err != nil || (len(checks["w-1"].Blocked) == 0) != whole {
			t.Errorf("whole %t: %+v, %v", whole, checks, err)
		}
		if err := e.Drain(t.Context(), []string{"cp-1", "w-1"}, o, quiet); (err == nil) != whole || slices.Contains(c.flags, "--disable-eviction") != whole {
			t.Errorf("whole %t: %q, %v", whole, c.flags, err)
		}
	}
}

func merged(base, more object) object {
	for key, value := range more {
		inner, ok := value.(object)
		if old, is := base[key].(object); ok && is {
			for k, v := range inner {
				if v == nil {
					delete(old, k)
				} else {
					old[k] = v
				}
			}
		} else {
			base[key] = value
		}
	}
	return base
}

// A drain reports what it waits for and ends after its time limit; the node is then uncordoned.
func TestDrainReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(true)
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, budgets: []object{budget("web", "web", 1, 2, 1)}}
		c.bound = map[string][]object{"w-1": {podOf("web-1", "ReplicaSet"), podOf("proxy", "DaemonSet"),
			podOf("db-0", "StatefulSet", object{"metadata": object{"deletionTimestamp": time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339), "deletionGracePeriodSeconds": 30}})}}
		c.drained = func(*cluster, string) error { return errRound }
		var said []string
		begin := time.Now()
		err := c.engine("cp-1", "w-1").Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, func(_, text string) { said = append(said, text) })
		took := time.Since(begin)
		if took < drainTimeout || took > drainTimeout+2*roundTimeout {
			t.Errorf("it ended after %v", took)
		}
		want := "drained for 5s: 2 pods left: shop/web-1 waits for PodDisruptionBudget shop/web, which allows 0 disruptions (1 of 2 pods must be healthy, and 1 are); shop/db-0 has been terminating for 15s"
		if len(said) < 10 || said[0] != "evicts 2 pods" || said[1] != want {
			t.Errorf("%d times, first %q", len(said), said[:2])
		}
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), "w-1: drain: pods remain after 5m2s: shop/web-1 waits for") {
			t.Errorf("%v", err)
		}
		if w["unschedulable"] == true {
			t.Error("it is left cordoned")
		}
		// The budget allows the eviction after some rounds.
		rounds := 0
		c.drained = func(c *cluster, on string) error {
			if rounds++; rounds < 3 {
				return errRound
			}
			c.bound[on] = nil
			return nil
		}
		if err := c.engine("cp-1", "w-1").Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet); err != nil || rounds != 3 {
			t.Errorf("after %d rounds: %v", rounds, err)
		}
	})
}

// The drain of a node whose kubelet has stopped is short, because the end of its pods cannot be observed.
func TestDrainBroken(t *testing.T) {
	for name, c := range map[string]struct {
		ready   bool
		broken  []string
		removal bool
		short   bool
	}{
		"healthy":                 {true, []string{"w-2"}, false, false},
		"its programs are broken": {true, []string{"w-1"}, false, true},
		"not Ready":               {false, nil, false, true},
		"removed, and not Ready":  {false, nil, true, true},
		"removed":                 {true, nil, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(c.ready)},
				bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}}, drained: func(*cluster, string) error { return errRound }}
			begin := time.Now()
			err := cluster.engine("cp-1", "w-1").Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{Broken: c.broken, Removal: c.removal}, quiet)
			if took := time.Since(begin); (took < 20*time.Second) != c.short || (err == nil) != c.short || took > drainTimeout+2*roundTimeout {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}

// The pods of a broken node are evicted also if the API answers only after the time limit of its drain.
func TestDrainBrokenWhileAPIUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(false)}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}}}
		e := c.engine("cp-1", "w-1")
		run, until := e.Run, time.Time{}
		e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
			if slices.Contains(argv, "pods") && until.IsZero() {
				until = time.Now().Add(20 * time.Second)
			}
			if time.Now().Before(until) {
				return nil, errors.New("The connection to the server 127.0.0.1:6443 was refused")
			}
			return run(ctx, on, stdin, argv...)
		}
		if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet); err != nil || len(c.bound["w-1"]) > 0 {
			t.Errorf("%v, %q", err, c.bound["w-1"])
		}
	})
}

// Ctrl-C ends a drain at once, and the node takes work.
func TestDrainInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(true)
		ctx, cancel := context.WithCancel(t.Context())
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}}}
		c.drained = func(*cluster, string) error { cancel(); return ctx.Err() }
		err := c.engine("cp-1", "w-1").Drain(ctx, []string{"w-1"}, engine.DrainOptions{}, quiet)
		if !errors.Is(err, context.Canceled) || w["unschedulable"] == true || len(w["annotations"].(object)) > 0 {
			t.Errorf("%v, %v", err, w)
		}
	})
}

// A kubelet may be dead long before the API notices.
func TestLook(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet kubelet
		want    string // empty: it is healthy
	}{
		"well":       {kubelet{"running", time.Hour, 0}, ""},
		"stopped":    {kubelet{"dead", time.Hour, time.Minute}, "kubelet.service is stopped"},
		"failed":     {kubelet{"failed", time.Hour, time.Minute}, "kubelet.service is failed: the log of the kubelet"},
		"dies again": {kubelet{"auto-restart", time.Second, time.Minute}, "kubelet.service ends again and again: the log of the kubelet"},
	} {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, kubelets: map[string]kubelet{"w-1": c.kubelet}}
		err := engine.Inspect(t.Context(), cluster.engine("cp-1", "w-1"), "w-1", false)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// A node that is not a member has no units of the engine.
	c := &cluster{t: t, down: map[string]string{"stranger": "no route to host"}}
	if faults, err := c.engine("cp-1", "w-1").FindFaults(t.Context(), "stranger"); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// A kubelet that does not work is named within ten seconds, and is waited for only for a minute.
func TestWaitReadyBrokenKubelet(t *testing.T) {
	for _, state := range []string{"failed", "auto-restart"} {
		for _, isReady := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := node(isReady)
				w["unschedulable"], w["annotations"] = true, object{DrainedAnnotation: "2026-01-01T00:00:00Z"}
				c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, kubelets: map[string]kubelet{"w-1": {state, time.Hour, time.Hour}}}
				e := c.engine("cp-1", "w-1")
				begin := time.Now()
				var named time.Duration
				seen, err := engine.LookAt(e, "w-1").While(t.Context(), func(string) { named = time.Since(begin) }, func(ctx context.Context) error { return e.WaitReady(ctx, "w-1", quiet) })
				var absent *engine.NotReadyError
				if !errors.As(err, &absent) || time.Since(begin) > 70*time.Second || !strings.Contains(err.Error(), "kubelet: the log of kubelet.service") || !strings.Contains(absent.Hint(), "nixbench rollback --on w-1") {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
				if named == 0 || named > 10*time.Second || !strings.HasPrefix(seen, "w-1: kubelet.service ") || !strings.HasSuffix(seen, ": the log of the kubelet") {
					t.Errorf("%q after %v", seen, named)
				}
			})
		}
	}
}

// An uncordon is retried while the API is unavailable, such as after a restart of a control plane's programs.
func TestUncordonRetriesUnavailableAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(true)
		w["unschedulable"], w["annotations"] = true, object{DrainedAnnotation: "2026-01-01T00:00:00Z"}
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}}
		e := c.engine("cp-1", "w-1")
		run, away := e.Run, 3
		e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
			if isUncordon(argv) {
				if away--; away >= 0 {
					return nil, errors.New("The connection to the server 127.0.0.1:6443 was refused")
				}
			}
			return run(ctx, on, stdin, argv...)
		}
		if err := e.Uncordon(t.Context(), "w-1"); err != nil || w["unschedulable"] == true {
			t.Errorf("%v, %v", err, w)
		}
		// A request that the API refuses is not retried.
		w["unschedulable"], w["annotations"] = true, object{DrainedAnnotation: "2026-01-01T00:00:00Z"}
		c.refuse = map[string]string{"kubectl patch": "Error from server (Forbidden): no"}
		begin := time.Now()
		if err := e.Uncordon(t.Context(), "w-1"); err == nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// The steps of a drain are retried while the API is unavailable.
func TestDrainRetriesUnavailableAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(true)
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}}}
		e := c.engine("cp-1", "w-1")
		run, until := e.Run, time.Time{}
		times := map[string]bool{}
		e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
			// The API is unavailable for ten seconds from the first call of each command.
			words := slices.DeleteFunc(slices.Clone(argv), func(a string) bool { return strings.HasPrefix(a, "--") || a == AdminConf })
			if word := words[1]; !times[word] {
				times[word], until = true, time.Now().Add(10*time.Second)
			}
			if time.Now().Before(until) {
				return nil, errors.New("The connection to the server 127.0.0.1:6443 was refused")
			}
			return run(ctx, on, stdin, argv...)
		}
		if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet); err != nil || w["unschedulable"] != true || len(c.did("kubectl drain")) != 1 {
			t.Errorf("%v, %v", err, c.ran)
		}
		// The drain ends if the API stays unavailable.
		begin := time.Now()
		until = begin.Add(time.Hour)
		if err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet); err == nil || time.Since(begin) > time.Minute || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// The API may be away when a drain has failed. If it stays away, the error says that the node may be cordoned.
func TestUndoDrainWhileAPIUnavailable(t *testing.T) {
	for _, away := range []time.Duration{20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := node(true)
			c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, bound: map[string][]object{"w-1": {podOf("web-1", "ReplicaSet")}},
				drained: func(*cluster, string) error { return errRound }}
			e := c.engine("cp-1", "w-1")
			run, until := e.Run, time.Time{}
			e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
				if isUncordon(argv) && until.IsZero() {
					until = time.Now().Add(away)
				}
				if time.Now().Before(until) {
					return nil, errors.New("The connection to the server 127.0.0.1:6443 was refused")
				}
				return run(ctx, on, stdin, argv...)
			}
			err := e.Drain(t.Context(), []string{"w-1"}, engine.DrainOptions{}, quiet)
			cordoned := w["unschedulable"] == true
			if !strings.Contains(fmt.Sprint(err), "pods remain after") || cordoned != (away == time.Hour) || strings.Contains(err.Error(), "the node may still be cordoned") != cordoned ||
				strings.Contains(failure.Hint(err), "the node is uncordoned") == cordoned {
				t.Errorf("away for %v: cordoned %v, %v", away, cordoned, err)
			}
		})
	}
}
