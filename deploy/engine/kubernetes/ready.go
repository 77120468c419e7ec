package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// WaitReady implements [engine.Engine]. The member's kubelet must work with the current configuration, and
// a control plane must also serve its own API. Without that check, the API could be unavailable when the
// next node is drained.
func (e *Engine) WaitReady(ctx context.Context, node string, report engine.Report) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	reported := ""
	var stoppedSince time.Time // zero while the kubelet is not stopped
	for {
		now := e.checkReady(ctx, node)
		if now == nil {
			return nil
		}
		if end, _ := ctx.Deadline(); missing == nil || time.Until(end) > 0 { // otherwise the error is about the time limit
			missing = now
		}
		if text := keepLastLine(missing).Error(); text != reported && ctx.Err() == nil {
			reported = text
			report(node, "waits: "+text)
		}
		var stopped *stoppedError
		switch {
		case !errors.As(missing, &stopped):
			stoppedSince = time.Time{}
		case stoppedSince.IsZero():
			stoppedSince = time.Now()
		case time.Since(stoppedSince) > stoppedTimeout:
			return e.newNotReadyError(ctx, node, begin, missing)
		}
		if !sleep(ctx, pollInterval) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return e.newNotReadyError(ctx, node, begin, missing)
			}
			return context.Cause(ctx)
		}
	}
}

// checkReady returns nil if the node is Ready and works with its current configuration, or if it is neither
// a member nor in the hive. Otherwise the error says what is missing.
func (e *Engine) checkReady(ctx context.Context, node string) error {
	nodes, err := e.listNodes(ctx)
	n, member := nodes[node]
	switch {
	case err != nil:
		return err
	case !member && !e.isInHive(node):
		return nil
	case !member:
		if how := e.describeJoin(ctx, node); how != "" {
			return fmt.Errorf("it is not registered: it is at %s", how)
		}
		return errors.New("it is not registered")
	case !isReady(n):
		return e.explainNotReady(ctx, node, n)
	}
	return e.checkWorking(ctx, node)
}

// explainNotReady returns why a node is not Ready. A stopped kubelet is reported instead of the message
// of the Ready condition, because it is the cause.
func (e *Engine) explainNotReady(ctx context.Context, node string, n gjson.Result) error {
	stopped := &stoppedError{}
	if err := e.checkKubeletReported(ctx, node); errors.As(err, &stopped) && !e.isConfiguring(ctx, node) {
		return stopped
	}
	return fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
}

// newNotReadyError returns the error for a node that did not become ready, with the logs of its programs.
func (e *Engine) newNotReadyError(ctx context.Context, node string, begin time.Time, missing error) error {
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer stop()
	return &NotReadyError{Node: node, After: time.Since(begin), Missing: missing,
		Logs: e.explainMembers(func(m string) bool { return m == node })(late)}
}

// NotReadyError is returned if a node does not work in the cluster after a change.
type NotReadyError struct {
	Node    string
	After   time.Duration
	Missing error
	Logs    string // of the programs of the node
}

func (e *NotReadyError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NotReadyError) OnNode() (node, text string) {
	text = fmt.Sprintf("not ready after %v, so it is not uncordoned: %v", e.After.Round(time.Second), e.Missing)
	if e.Logs != "" {
		text += "\n" + e.Logs
	}
	return e.Node, text
}

func (e *NotReadyError) Unwrap() error { return e.Missing }

// Hint says what to do about it.
func (e *NotReadyError) Hint() string {
	return fmt.Sprintf("fix the hive and run nixbench apply again, or roll back: nixbench rollback --on %[1]s; to recreate a machine that nixbench has booted: nixbench destroy --on %[1]s, then nixbench apply", e.Node)
}

// checkWorking returns nil if the node works with its current configuration. Otherwise the error says
// what is missing.
func (e *Engine) checkWorking(ctx context.Context, node string) error {
	if e.isConfiguring(ctx, node) {
		_, text := e.readPhase(ctx, node)
		return fmt.Errorf("its settings are still being applied%s", text)
	}
	if e.IsControlPlane(node) { // other API servers report it Ready even if its own API server or etcd is down
		if why := e.explainAPIFailure(ctx, node); why != "" {
			return errors.New("its own API server is not ready: " + why)
		}
	}
	return e.checkKubeletReported(ctx, node)
}

// isConfiguring reports whether nixbench-kubernetes.service is running on the node. It returns false
// if the node cannot be reached.
func (e *Engine) isConfiguring(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// Uncordon implements [engine.Engine]. A node that an administrator had cordoned before the drain stays
// cordoned. Uncordon retries while the API is unavailable, so that the node is not left cordoned.
func (e *Engine) Uncordon(ctx context.Context, node string) error {
	isTemporary := func(err error) bool { return !errors.Is(err, errNoControlPlane) && !isDefiniteError(err) }
	err := retry(ctx, isTemporary, func() error {
		nodes, err := e.listNodes(ctx)
		if err != nil {
			return err
		}
		return e.removeDrainMark(ctx, node, drainMark(nodes[node]).String())
	})
	if err == nil || errors.Is(err, errNoControlPlane) {
		return nil
	}
	return failure.On(node, fmt.Errorf("uncordon: %w", shortenError(ctx, err)))
}

// removeDrainMark uncordons the node and then removes the annotation of Drain. In this order, a later
// run repeats both steps after a run that was killed in between. Without an annotation it does nothing.
func (e *Engine) removeDrainMark(ctx context.Context, node, mark string) error {
	if mark == "" {
		return nil
	}
	if !wasCordonedBefore(mark) {
		if _, err := e.runKubectl(ctx, "", "uncordon", node); err != nil {
			return err
		}
	}
	if _, err := e.runKubectl(ctx, "", "annotate", "node", node, drainedAnnotation+"-"); err != nil && !isNotFoundError(err) {
		return err
	}
	return nil
}
