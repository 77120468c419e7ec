package kubernetes

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// If one control plane does not answer, kubectl runs on another one.
func TestSickControlPlane(t *testing.T) {
	for name, set := range map[string]func(*cluster){
		"its etcd is slow": func(c *cluster) {
			c.sick = map[string]string{"cp-1": "Error from server: etcdserver: request timed out"}
		},
		"it is about to end": func(c *cluster) {
			c.sick = map[string]string{"cp-1": "Error from server (ServiceUnavailable): apiserver is shutting down"}
		},
		"it is unreachable":    func(c *cluster) { c.down = map[string]string{"cp-1": "no route to host"} },
		"it has lost its node": func(c *cluster) { c.silent = map[string]bool{"cp-1": true} },
	} {
		c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true)}}
		set(c)
		e := c.engine("cp-1", "cp-2")
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond) // instead of half a minute
		m, err := e.Members(ctx)
		cancel()
		if err != nil || len(m) != 2 {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		c.ran = nil
		if _, err := e.Members(t.Context()); err != nil || !strings.HasPrefix(c.ran[0], "cp-2: ") {
			t.Errorf("%s: the next question: %q, %v", name, c.ran, err)
		}
	}
	// An error that every control plane would return is not retried on the others.
	c := &cluster{t: t, nodes: map[string]object{}, refuse: map[string]string{"kubectl get nodes": "Error from server (Forbidden): nodes is forbidden"}}
	if _, err := c.engine("cp-1", "cp-2").Members(t.Context()); err == nil || len(c.did("kubectl")) != 1 {
		t.Errorf("%v, %q", err, c.ran)
	}
	c = &cluster{t: t, silent: map[string]bool{"cp-1": true, "cp-2": true}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.engine("cp-1", "cp-2").Members(ctx); err == nil || !strings.Contains(err.Error(), "cp-1: kubectl get: no answer within") {
		t.Error(err)
	}
}

// If the time is over before all control planes were asked, it is unknown whether the cluster exists.
func TestTooLateForAllControlPlanes(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-2": controlPlane(true)}, sick: map[string]string{"cp-1": "error loading config file " + AdminConf + ": no such file or directory"}}
	e := c.engine("cp-1", "cp-2")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	run := e.Run
	e.Run = func(_ context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond) // the contexts that are derived from ctx end later than ctx
		return run(t.Context(), on, stdin, argv...)
	}
	if m, err := e.Members(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", m, err)
	}
}

// If the other control planes are unreachable when the first one is admitted, it is permitted to create the
// cluster when the next node is admitted.
func TestPermitIsNotLost(t *testing.T) {
	c := &cluster{t: t, noCluster: true, phases: phaseWaiting, down: map[string]string{"cp-2": "no route to host"}}
	e := c.engine("cp-1", "cp-2")
	if err := e.Admit(t.Context(), "cp-1"); err == nil || len(c.did("install")) > 0 {
		t.Errorf("%v, %q", err, c.ran)
	}
	delete(c.down, "cp-2")
	if err := e.Admit(t.Context(), "cp-2"); err != nil || len(c.did("install")) != 1 || !strings.HasPrefix(c.did("install")[0], "cp-1: ") {
		t.Errorf("%v, %q", err, c.did("install"))
	}
	// A control plane without kubectl and admin.conf has not been set up.
	c = &cluster{t: t, noCluster: true, bare: map[string]bool{"cp-2": true}}
	if err := c.engine("cp-1", "cp-2").Admit(t.Context(), "cp-1"); err != nil || len(c.did("install")) != 1 {
		t.Errorf("%v, %q", err, c.ran)
	}
	// A control plane without kubectl that has an admin.conf has been set up.
	c = &cluster{t: t, noCluster: true, phases: phaseWaiting, bare: map[string]bool{"cp-2": true}, refuse: map[string]string{"test !": "exit status 1"}}
	if err := c.engine("cp-1", "cp-2").Admit(t.Context(), "cp-1"); err == nil || len(c.did("install")) > 0 {
		t.Errorf("%v, %q", err, c.ran)
	}
}
