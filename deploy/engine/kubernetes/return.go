package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Return gives work back to a node that we drained, or waits for one that was made anew, once
// its kubelet works with what it has now, and all that has changed is taken over: a control plane
// may be without its API meanwhile, and the next node could not be drained.
func (e *Engine) Return(ctx context.Context, node string, report func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	said := ""
	var dead time.Time // since when its kubelet is
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
				return e.uncordon(ctx, node, drainMark(n).String())
			}
		}
		if text := lastLine(missing).Error(); text != said && ctx.Err() == nil {
			said = text
			report("waits: " + text)
		}
		var died *stoppedError
		switch {
		case !errors.As(missing, &died):
			dead = time.Time{}
		case dead.IsZero():
			dead = time.Now()
		case time.Since(dead) > stoppedTimeout:
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

// explainNotReady says why the API does not call a node Ready. A stopped kubelet is the better reason.
func (e *Engine) explainNotReady(ctx context.Context, node string, n gjson.Result) error {
	dead := &stoppedError{}
	if err := e.checkKubeletReported(ctx, node); errors.As(err, &dead) && !e.isConfiguring(ctx, node) {
		return dead
	}
	return fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
}

// notReadyError says that the node does not come back, with what its own programs say of it.
func (e *Engine) notReadyError(ctx context.Context, node string, begin time.Time, missing error) error {
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer stop()
	return &NotReadyError{Node: node, After: time.Since(begin), Missing: missing,
		Logs: e.explainMembers(func(m string) bool { return m == node })(late)}
}

// NotReadyError says that a node does not work in the cluster after a change.
type NotReadyError struct {
	Node    string
	After   time.Duration
	Missing error
	Logs    string // of its own programs
}

func (e *NotReadyError) Error() string {
	text := fmt.Sprintf("%s: after %v it cannot be given work again: %v", e.Node, e.After.Round(time.Second), e.Missing)
	if e.Logs != "" {
		text += "\n" + e.Logs
	}
	return text
}

func (e *NotReadyError) Unwrap() error { return e.Missing }

// Hint says what to do about it.
func (e *NotReadyError) Hint() string {
	return fmt.Sprintf("mend the hive and run nixbench apply again, or go back: nixbench rollback --on %[1]s; a machine that nixbench has booted is made anew by nixbench destroy --on %[1]s, then nixbench apply", e.Node)
}

// checkWorking is nil once the node works with what it has now; else it says what is missing.
func (e *Engine) checkWorking(ctx context.Context, node string) error {
	if e.isConfiguring(ctx, node) {
		_, text := e.readPhase(ctx, node)
		return fmt.Errorf("it is still taking over its settings%s", text)
	}
	if e.IsControlPlane(node) { // the others' servers call it Ready, whatever its own one and its etcd do
		if why := e.apiFailure(ctx, node); why != "" {
			return errors.New("its own API does not answer: " + why)
		}
	}
	return e.checkKubeletReported(ctx, node)
}

// isConfiguring tells whether the node's unit is at work. One that cannot be asked says nothing.
func (e *Engine) isConfiguring(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// uncordon comes before the mark is removed: a run that is killed in between does it again.
func (e *Engine) uncordon(ctx context.Context, node, mark string) error {
	if mark == "" {
		return nil
	}
	if !wasCordonedBefore(mark) {
		if _, err := e.kubectl(ctx, "", "uncordon", node); err != nil {
			return fmt.Errorf("%s: uncordon: %w", node, err)
		}
	}
	if _, err := e.kubectl(ctx, "", "annotate", "node", node, drainedAnnotation+"-"); err != nil && !isNotFound(err) {
		return fmt.Errorf("%s: uncordon: %w", node, err)
	}
	return nil
}
