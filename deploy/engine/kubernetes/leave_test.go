package kubernetes

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// goForGood is what a node's machine being removed means here.
func goForGood(t *testing.T, e *Engine, node string) error {
	if err := e.Leave(t.Context(), node, true); err != nil {
		return err
	}
	return e.Forget(t.Context(), node)
}

// A node that is gone cannot reset itself: the others forget it.
func TestLeaveForGood(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": node(true), "cp-2": controlPlane(false), "w-1": node(true)},
		down: map[string]string{"cp-2": "no route to host"}, etcd: etcdOfThree}
	e := c.engine("cp-1", "w-2") // cp-2 and w-1 have left the hive
	for _, name := range []string{"cp-2", "w-1"} {
		if err := goForGood(t, e, name); err != nil {
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

// etcd says whether a control plane can be spared, before anything is lost there.
func TestControlPlaneThatIsNeeded(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(false), "cp-3": controlPlane(true)},
		down: map[string]string{"cp-2": "no route to host"}, etcd: etcdOfThree,
		refuse: map[string]string{"etcdctl member remove": "etcdserver: unhealthy cluster"}}
	err := goForGood(t, c.engine("cp-1", "cp-2"), "cp-3")
	if err == nil || err.Error() != "cp-3: etcd: it cannot be spared while etcd is down on cp-2; mend that first: etcdserver: unhealthy cluster" {
		t.Error(err)
	}
	if lost := append(c.did("nixbench-kubernetes-reset"), c.did("kubectl delete")...); len(lost) > 0 {
		t.Errorf("done all the same: %q", lost)
	}
	// Once etcd lets it go, its own server is no use any more: etcd comes before the rest.
	c.refuse = nil
	delete(c.down, "cp-2")
	c.ran = nil
	if err := goForGood(t, c.engine("cp-1", "cp-2"), "cp-3"); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, line := range c.ran {
		for _, what := range []string{"drain", "member remove", "kubernetes-reset", "delete node"} {
			if strings.Contains(line, what) {
				order = append(order, what)
			}
		}
	}
	if got := strings.Join(order, ", "); got != "drain, member remove, kubernetes-reset, delete node" {
		t.Errorf("in the order %s", got)
	}
}

// A member of etcd that has just come back is counted a little later.
func TestControlPlaneIsSparedSoon(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true), "cp-3": controlPlane(true)}, etcd: etcdOfThree}
	e := c.engine("cp-1", "cp-2")
	run, tries := e.Run, 0
	e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
		if slices.Contains(argv, "remove") {
			if tries++; tries == 1 {
				return nil, errors.New("etcdserver: unhealthy cluster")
			}
		}
		return run(ctx, on, stdin, argv...)
	}
	if err := e.Forget(t.Context(), "cp-3"); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// A reset that fails is told, once the others count the node no more.
func TestResetFails(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true)}, refuse: map[string]string{"nixbench-kubernetes-reset": "no space left"}}
	if err := goForGood(t, c.engine("cp-1"), "w-1"); err == nil || err.Error() != "w-1: reset: no space left" {
		t.Error(err)
	}
	if len(c.nodes) != 1 {
		t.Errorf("still registered: %v", c.nodes)
	}
}

// Whoever has cordoned a node himself finds it cordoned, although it was about to leave.
func TestCordonStays(t *testing.T) {
	own := node(true)
	own["unschedulable"] = true
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": own}, refuse: map[string]string{"kubectl drain": "global timeout reached: 5m0s"}}
	e := c.engine("cp-1", "w-1")
	for range 2 { // a run, and the next one
		if err := e.Leave(t.Context(), "w-1", true); err == nil {
			t.Fatal("it was drained")
		}
	}
	if err := e.Return(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if m, _ := e.Members(t.Context()); own["unschedulable"] != true || m["w-1"].Left {
		t.Errorf("w-1: %v", own)
	}
}

// A node may be called Ready whose kubelet has died with the switch.
func TestReturnWantsProof(t *testing.T) {
	for name, c := range map[string]struct {
		ready   bool
		kubelet kubelet
		want    string // empty: it returns
	}{
		"not Ready":        {false, kubelet{"running", time.Hour, 0}, "it is not Ready: starting"},
		"well":             {true, kubelet{"running", time.Hour, 5 * time.Second}, ""},
		"restarted":        {true, kubelet{"running", 5 * time.Second, time.Second}, ""},
		"dies again":       {true, kubelet{"auto-restart", time.Second, 8 * time.Second}, "its kubelet is auto-restart"},
		"just born again":  {true, kubelet{"running", time.Second, 8 * time.Second}, "its kubelet has not reported since it was started"},
		"has lost the API": {true, kubelet{"running", time.Hour, 40 * time.Second}, "its kubelet has not reported for "},
	} {
		w := node(c.ready)
		w["unschedulable"], w["annotations"] = true, object{left: "2026-01-01T00:00:00Z"}
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": w}, kubelets: map[string]kubelet{"w-1": c.kubelet}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := cluster.engine("cp-1", "w-1").Return(ctx, "w-1")
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if (w["unschedulable"] == true) != (c.want != "") {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// Nor is a control plane well whose own server is not: the next one may be the one too many.
func TestReturnOfControlPlane(t *testing.T) {
	c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true)}, sick: map[string]string{"cp-2": "etcd failed"}}
	e := c.engine("cp-1", "cp-2")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Return(ctx, "cp-2"); err == nil || !strings.Contains(err.Error(), "its own API does not answer: cp-2: etcd failed") {
		t.Error(err)
	}
	c.sick = nil
	if err := e.Return(t.Context(), "cp-2"); err != nil {
		t.Error(err)
	}
}

// One that was made anew returns when it is there; one that the hive does not have is not waited for.
func TestReturnOfNew(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}}
	e := c.engine("cp-1", "w-1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Return(ctx, "w-1"); err == nil || !strings.Contains(err.Error(), "it is not registered") {
		t.Error(err)
	}
	if err := e.Return(t.Context(), "w-9"); err != nil {
		t.Error(err)
	}
}

// A drain ends: nobody waits for hours, and not at all long for the pods of a node that is gone.
func TestDrainEnds(t *testing.T) {
	for _, c := range []struct {
		ready, good bool
		want        string
	}{{true, false, "--timeout=5m0s"}, {true, true, "--timeout=5m0s"}, {false, false, "--timeout=5m0s"}, {false, true, "--timeout=10s"}} {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(c.ready)}}
		e := cluster.engine("cp-1", "w-1")
		run, drained := e.Run, false
		e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
			if slices.Contains(argv, "drain") {
				drained = true
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > drainTimeout+askTimeout || !slices.Contains(argv, c.want) {
					t.Errorf("%+v: until %v, %q", c, end, argv)
				}
			}
			return run(ctx, on, stdin, argv...)
		}
		if err := e.Leave(t.Context(), "w-1", c.good); err != nil || !drained {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
