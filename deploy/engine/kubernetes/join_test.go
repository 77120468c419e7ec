package kubernetes

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// For a node that does not register, the error contains its phase, and the program on it that does not work.
func TestNodeDoesNotRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}, kubelets: map[string]kubelet{"w-1": {"auto-restart", time.Second, time.Hour}}}
		e := cluster.engine("cp-1", "w-1")
		nodes := e.Conditions(engine.CheckOptions{})[1]
		const why = "w-1, at join (the API does not answer yet), kubelet.service ends again and again: the log of the kubelet"
		if err := nodes.Probe(t.Context()); err == nil || err.Error() != "not registered: "+why {
			t.Error(err)
		}
		if got := nodes.Explain(t.Context()); !strings.Contains(got, "w-1: join (the API does not answer yet)\n") {
			t.Error(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := e.WaitReady(ctx, "w-1", quiet)
		if err == nil || !strings.Contains(err.Error(), "it is not registered: it is at join") || !strings.Contains(err.Error(), "kubelet: the log of kubelet.service") {
			t.Error(err)
		}
	})
}
