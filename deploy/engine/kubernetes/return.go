package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Return gives work back to a node that we drained, or waits for one that was made anew, once
// its kubelet works with what it has now, and all that has changed is taken over: a control plane
// may be without its API meanwhile, and the next node could not be drained.
func (e *Engine) Return(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	for {
		nodes, err := e.nodes(ctx)
		n, member := nodes[node]
		switch {
		case err != nil:
			missing = err
		case !member && !e.wants(node):
			return nil
		case !member:
			missing = errors.New("it is not registered")
		case !ready(n):
			missing = fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
		default:
			if missing = e.settled(ctx, node); missing == nil {
				return e.uncordon(ctx, node, mark(n))
			}
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s: after %v it cannot be given work again: %w", node, time.Since(begin).Round(time.Second), missing)
			}
			return context.Cause(ctx)
		}
	}
}

// settled is nil once the node works with what it has now; else it says what is missing.
func (e *Engine) settled(ctx context.Context, node string) error {
	if e.busy(ctx, node) {
		_, text := e.phase(ctx, node)
		return fmt.Errorf("it is still taking over its settings%s", text)
	}
	if e.IsControlPlane(node) { // the others' servers call it Ready, whatever its own one and its etcd do
		if why := e.silence(ctx, node); why != "" {
			return errors.New("its own API does not answer: " + why)
		}
	}
	return e.reports(ctx, node)
}

// reports wants the kubelet to have reported since it was started: the API calls a node Ready
// for most of a minute after its kubelet has died, and systemd calls one active that dies again and
// again. All times are the node's own.
func (e *Engine) reports(ctx context.Context, node string) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(asking, node, nil, "sh", "-c", "date +now=%s; systemctl show --timestamp=unix --property=SubState,ActiveEnterTimestamp kubelet.service")
	if err != nil {
		return err
	}
	says := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		says[key] = value
	}
	if says["SubState"] != "running" {
		return fmt.Errorf("its kubelet is %s", cmp.Or(says["SubState"], "unknown"))
	}
	out, err = e.kubectl(ctx, "", "-n", "kube-node-lease", "get", "lease", node, "-o", "jsonpath={.spec.renewTime}")
	if err != nil {
		return err
	}
	renewed, err := time.Parse(time.RFC3339, string(out))
	if err != nil {
		return fmt.Errorf("its lease has no time: %w", err)
	}
	now, _ := strconv.ParseInt(says["now"], 10, 64)
	begun, err := strconv.ParseInt(strings.TrimPrefix(says["ActiveEnterTimestamp"], "@"), 10, 64)
	switch since := time.Unix(now, 0).Sub(renewed); {
	case err != nil:
		return fmt.Errorf("its kubelet runs since %q", says["ActiveEnterTimestamp"])
	case renewed.Before(time.Unix(begun+1, 0)): // systemd tells whole seconds
		return errors.New("its kubelet has not reported since it was started")
	case since > reportTimeout:
		return fmt.Errorf("its kubelet has not reported for %v", since.Round(time.Second))
	}
	return nil
}

// busy tells whether the node's unit is at work. One that cannot be asked says nothing.
func (e *Engine) busy(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// uncordon comes before the mark is removed: a run that is killed in between does it again.
func (e *Engine) uncordon(ctx context.Context, node string, mark gjson.Result) error {
	if !mark.Exists() {
		return nil
	}
	if !strings.HasSuffix(mark.String(), theirs) {
		if _, err := e.kubectl(ctx, "", "uncordon", node); err != nil {
			return fmt.Errorf("%s: uncordon: %w", node, err)
		}
	}
	if _, err := e.kubectl(ctx, "", "annotate", "node", node, left+"-"); err != nil && !notFound(err) {
		return fmt.Errorf("%s: uncordon: %w", node, err)
	}
	return nil
}
