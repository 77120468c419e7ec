package kubernetes

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

const rbacMissing = `Error from server (Forbidden): nodes is forbidden: User "kubernetes-admin" cannot list resource "nodes" in API group "" at the cluster scope`

// An API server denies all requests for some seconds after its start. Another control plane is asked then.
func TestRBACMissingOnOneControlPlane(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "cp-2": controlPlane(true)}, sick: map[string]string{"cp-1": rbacMissing}}
	if m, err := c.engine("cp-1", "cp-2").Members(t.Context()); err != nil || len(m) != 2 {
		t.Errorf("%v, %v", m, err)
	}
}

// Drain, WaitReady and Uncordon wait until a started API server has loaded its RBAC rules.
func TestRBACMissingAfterStart(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Engine) error{
		"drain": func(ctx context.Context, e *Engine) error {
			return e.Drain(ctx, []string{"cp-1"}, engine.DrainOptions{}, quiet)
		},
		"wait":     func(ctx context.Context, e *Engine) error { return e.WaitReady(ctx, "cp-1", quiet) },
		"uncordon": func(ctx context.Context, e *Engine) error { return e.Uncordon(ctx, "cp-1") },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": controlPlane(true)}}
			e := c.engine("cp-1")
			run, until := e.Run, time.Now().Add(5*time.Second)
			e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
				if argv[0] == "kubectl" && time.Now().Before(until) {
					return nil, errors.New("kubectl --server=x get nodes on 10.0.0.1:22: exit status 1: " + rbacMissing)
				}
				return run(ctx, on, stdin, argv...)
			}
			if err := call(t.Context(), e); err != nil || time.Now().Before(until) {
				t.Errorf("%s: %v", name, err)
			}
			// The wait ends if the API server never loads the rules.
			began := time.Now()
			until = began.Add(time.Hour)
			if err := call(t.Context(), e); err == nil || time.Since(began) > 5*time.Minute+time.Minute || !strings.Contains(err.Error(), "cp-1: its API server has started and not loaded its RBAC rules yet: Error from server (Forbidden)") {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		})
	}
}

// While an API server denies /readyz, the message contains the probable cause.
func TestRBACMissingIsExplained(t *testing.T) {
	c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": controlPlane(true)},
		refuse: map[string]string{"kubectl get /readyz": `cp-1: Error from server (Forbidden): forbidden: User "kubernetes-admin" cannot get path "/readyz"`}}
	const want = "cp-1: its API server has started and not loaded its RBAC rules yet: Error from server (Forbidden): "
	if err := c.engine("cp-1").Conditions(engine.CheckOptions{})[0].Probe(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var said []string
	if err := c.engine("cp-1").WaitReady(ctx, "cp-1", func(_, text string) { said = append(said, text) }); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "waits: its own API server is not ready: "+want) {
		t.Errorf("%q", said)
	}
}
