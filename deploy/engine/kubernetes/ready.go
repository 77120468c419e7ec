package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/failure"
)

// UncordonWhenReady implements [engine.Engine]. The member's kubelet must work with the current
// configuration, and a control plane must also serve its own API. Without that check, the API could be
// unavailable when the next node is drained. A node that an administrator had cordoned before the drain
// stays cordoned.
func (e *Engine) UncordonWhenReady(ctx context.Context, node string, report func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	reported := ""
	var stoppedSince time.Time // zero while the kubelet is not stopped
	for {
		nodes, err := e.listNodes(ctx)
		n, member := nodes[node]
		switch {
		case err != nil:
			missing = err
		case !member && !e.isInHive(node):
			return nil
		case !member:
			missing = errors.New("it is not registered")
			if how := e.describeJoin(ctx, node); how != "" {
				missing = fmt.Errorf("it is not registered: it is at %s", how)
			}
		case !isReady(n):
			missing = e.explainNotReady(ctx, node, n)
		default:
			if missing = e.checkWorking(ctx, node); missing == nil {
				// Retry while the API is unavailable, so that the node is not left cordoned.
				if missing = e.removeDrainMark(ctx, node, drainMark(n).String()); missing == nil || isDefinite(missing) {
					return missing
				}
			}
		}
		if text := lastLine(missing).Error(); text != reported && ctx.Err() == nil {
			reported = text
			report("waits: " + text)
		}
		var stopped *stoppedError
		switch {
		case !errors.As(missing, &stopped):
			stoppedSince = time.Time{}
		case stoppedSince.IsZero():
			stoppedSince = time.Now()
		case time.Since(stoppedSince) > stoppedTimeout:
			return e.notReadyError(ctx, node, begin, missing)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return e.notReadyError(ctx, node, begin, missing)
			}
			return context.Cause(ctx)
		}
	}
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

// notReadyError returns the error for a node that did not become ready, with the logs of its programs.
func (e *Engine) notReadyError(ctx context.Context, node string, begin time.Time, missing error) error {
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
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
	text = fmt.Sprintf("after %v it cannot be given work again: %v", e.After.Round(time.Second), e.Missing)
	if e.Logs != "" {
		text += "\n" + e.Logs
	}
	return e.Node, text
}

func (e *NotReadyError) Unwrap() error { return e.Missing }

// Hint says what to do about it.
func (e *NotReadyError) Hint() string {
	return fmt.Sprintf("mend the hive and run nixbench apply again, or go back: nixbench rollback --on %[1]s; a machine that nixbench has booted is made anew by nixbench destroy --on %[1]s, then nixbench apply", e.Node)
}

// checkWorking returns nil if the node works with its current configuration. Otherwise the error says
// what is missing.
func (e *Engine) checkWorking(ctx context.Context, node string) error {
	if e.isConfiguring(ctx, node) {
		_, text := e.readPhase(ctx, node)
		return fmt.Errorf("it is still taking over its settings%s", text)
	}
	if e.IsControlPlane(node) { // other API servers report it Ready even if its own API server or etcd is down
		if why := e.apiFailure(ctx, node); why != "" {
			return errors.New("its own API does not answer: " + why)
		}
	}
	return e.checkKubeletReported(ctx, node)
}

// isConfiguring reports whether nixbench-kubernetes.service is running on the node. It returns false
// if the node cannot be reached.
func (e *Engine) isConfiguring(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// removeDrainMark uncordons the node and then removes the annotation of Drain. In this order, a later
// run repeats both steps after a run that was killed in between. Without an annotation it does nothing.
func (e *Engine) removeDrainMark(ctx context.Context, node, mark string) error {
	if mark == "" {
		return nil
	}
	if !wasCordonedBefore(mark) {
		if _, err := e.kubectl(ctx, "", "uncordon", node); err != nil {
			return failure.On(node, fmt.Errorf("uncordon: %w", shortenError(ctx, err)))
		}
	}
	if _, err := e.kubectl(ctx, "", "annotate", "node", node, drainedAnnotation+"-"); err != nil && !isNotFound(err) {
		return failure.On(node, fmt.Errorf("uncordon: %w", shortenError(ctx, err)))
	}
	return nil
}
