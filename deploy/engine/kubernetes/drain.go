package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// DrainedAnnotation is the annotation of a node that nixbench has drained. If a run of nixbench was killed, the next run
// uncordons only nodes with this annotation. So a node that an administrator has cordoned stays cordoned.
const DrainedAnnotation = "nixbench.dev/drained"

const (
	drainTimeout = 5 * time.Minute
	// roundTimeout is the time limit of one kubectl drain command. evictPods repeats the command, and checks
	// and reports the remaining pods after each command.
	roundTimeout = 5 * time.Second
	// brokenTimeout is the time limit of the drain of a broken node, on which the end of pods cannot be observed.
	brokenTimeout = 10 * time.Second
	// undoTimeout is the time limit of undoDrain. It must be longer than the restart of a control plane, because the API is
	// unavailable during that restart.
	undoTimeout = 30 * time.Second
)

// DrainMark returns the value of DrainedAnnotation of a Node object, or an empty string.
func DrainMark(n gjson.Result) string {
	return n.Get("metadata.annotations." + gjson.Escape(DrainedAnnotation)).String()
}

func isCordoned(n gjson.Result) bool { return n.Get("spec.unschedulable").Bool() }

// mustDrain reports whether nixbench must drain a node: always, unless an administrator has cordoned it. Before a removal,
// nixbench drains every node that can be reached, because the end of pods on an unreachable node cannot be observed.
func (c *Client) mustDrain(ctx context.Context, n gjson.Result, o engine.DrainOptions) bool {
	if !o.Removal {
		return DrainMark(n) != "" || !isCordoned(n)
	}
	_, err := c.Command(ctx, NodeName(n), "true")
	return err == nil
}

// Drain implements [engine.Engine]. It cordons all given nodes, and then runs kubectl drain for one node after the other. It
// returns an error if pods would be lost, or if a disruption budget blocks a drain permanently. If the drain of one node fails,
// Drain uncordons all nodes that it has cordoned.
func (c *Client) Drain(ctx context.Context, names []string, o engine.DrainOptions, report engine.Report) error {
	if len(names) == 0 {
		return nil
	}
	var nodes map[string]gjson.Result
	err := retryUnavailable(ctx, func() (err error) { nodes, err = c.Nodes(ctx); return err })
	if errors.Is(err, ErrNoControlPlane) {
		return nil
	}
	if err != nil {
		return engine.NewDrainError(names[0], Shorten(ctx, err))
	}
	var drained, marked []string
	undo := func(node string, err error) error {
		var blocked *engine.BlockedError
		if !errors.As(err, &blocked) { // a BlockedError already names the node
			err = engine.NewDrainError(node, err)
		}
		return c.undoDrain(ctx, marked, err)
	}
	for _, name := range names {
		n, member := nodes[name]
		if !member || !c.mustDrain(ctx, n, o) {
			continue
		}
		drained = append(drained, name)
		if isCordoned(n) && DrainMark(n) == "" { // by an administrator: it stays cordoned if its removal fails
			continue
		}
		marked = append(marked, name) // also if the mark fails, because it may be set
		if err := retryUnavailable(ctx, func() error { return c.mark(ctx, name, true) }); err != nil {
			return undo(name, Shorten(ctx, err))
		}
	}
	for _, name := range drained {
		broken := slices.Contains(o.Broken, name) || !IsReady(nodes[name]) // a node that is not Ready does not report the end of its pods to the API
		if err := c.evictPods(ctx, name, broken, o, func(text string) { report(name, text) }); err != nil {
			return undo(name, err)
		}
	}
	return nil
}

// mark cordons a node and sets DrainedAnnotation to the time, or uncordons it and removes the annotation.
func (c *Client) mark(ctx context.Context, node string, drained bool) error {
	var at any
	if drained {
		at = time.Now().UTC().Format(time.RFC3339)
	}
	patch, err := json.Marshal(Object{"metadata": Object{"annotations": Object{DrainedAnnotation: at}}, "spec": Object{"unschedulable": drained}})
	if err == nil {
		_, err = c.Kubectl(ctx, "", "patch", "node", node, "--type=merge", "-p", string(patch))
	}
	return err
}

// Uncordon implements [engine.Engine]. A node that an administrator has cordoned stays cordoned. Uncordon retries for up to Timeout
// while the API is unavailable, so that the node does not stay cordoned.
func (c *Client) Uncordon(ctx context.Context, node string) error {
	isTemporary := func(err error) bool { return !errors.Is(err, ErrNoControlPlane) && !IsDefinite(err) }
	err := engine.Retry(ctx, Timeout, isTemporary, func() error {
		nodes, err := c.Nodes(ctx)
		if err != nil || DrainMark(nodes[node]) == "" {
			return err
		}
		return c.mark(ctx, node, false)
	})
	if err == nil || errors.Is(err, ErrNoControlPlane) {
		return nil
	}
	return failure.On(node, fmt.Errorf("uncordon: %w", Shorten(ctx, err)))
}

func (c *Client) undoDrain(ctx context.Context, marked []string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	errs := []error{err}
	for _, name := range marked {
		undo := retryUnavailable(ctx, func() error { return c.mark(ctx, name, false) })
		if undo == nil {
			continue
		}
		errs = append(errs, failure.On(name, fmt.Errorf("uncordon: %w; the node may still be cordoned: the next run uncordons it, or kubectl uncordon %s", Shorten(ctx, undo), name)))
	}
	if !errors.Is(err, errPodsRemain) {
		return errors.Join(errs...)
	}
	hint := "run it again when the pods can be evicted; --no-drain changes the node without a drain"
	if len(errs) == 1 {
		hint = "the node is uncordoned again; " + hint
	}
	return failure.WithHint(errors.Join(errs...), hint)
}

// evictPods evicts the pods of a cordoned node. It runs kubectl drain repeatedly until no pod is left, and returns
// errPodsRemain after drainTimeout. For a broken node, the time limit is brokenTimeout, and remaining pods are not an error.
func (c *Client) evictPods(ctx context.Context, node string, broken bool, o engine.DrainOptions, report func(string)) error {
	limit := drainTimeout
	if broken {
		limit = brokenTimeout
	}
	begin := time.Now()
	for first := true; ; first = false {
		var pods []pod
		err := retryUnavailable(ctx, func() error {
			all, err := c.readPods(ctx, []string{node}, o.Whole)
			pods = all[node]
			return err
		})
		if err != nil {
			return Shorten(ctx, err)
		}
		if check := checkPods(pods, o, !broken); len(check.Blocked) > 0 {
			return &engine.BlockedError{Nodes: map[string][]engine.DrainItem{node: check.Blocked}}
		}
		pods = slices.DeleteFunc(pods, func(p pod) bool { return !p.isEvictable() })
		took, left := time.Since(begin), describeRemaining(pods)
		switch {
		case first: // the first round evicts pods also if the API has answered late
			report("evicts " + event.Count(len(pods), "pod"))
		case took >= limit && broken:
			return nil
		case took >= limit:
			return fmt.Errorf("%w after %v: %s", errPodsRemain, took.Round(time.Second), left)
		case left != "":
			report(fmt.Sprintf("drained for %v: %s left: %s", took.Round(time.Second), event.Count(len(pods), "pod"), left))
		}
		over := false
		err = retryUnavailable(ctx, func() (err error) { over, err = c.runDrainRound(ctx, node, pods, o.Whole); return err })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case over || err != nil && broken && time.Since(begin) >= limit:
			return nil
		case err != nil && !broken:
			return err
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return context.Cause(ctx)
		}
	}
}

func describeRemaining(pods []pod) string {
	var texts []string
	for _, p := range pods {
		texts = append(texts, p.name()+" "+p.describeWait())
	}
	return event.Abbreviate(texts, "; ")
}

var errPodsRemain = errors.New("pods remain")

// runDrainRound runs kubectl drain for at most roundTimeout, and reports whether the node is drained. It sets --force and
// --delete-emptydir-data only if one of the given pods needs the flag. So kubectl does not delete pods that were created after
// the check and need such a flag. With whole, when all nodes are drained, it ignores disruption budgets: kubectl would wait for
// new pods, which have no node to start on.
func (c *Client) runDrainRound(ctx context.Context, node string, pods []pod, whole bool) (bool, error) {
	args := []string{"drain", node, "--ignore-daemonsets", "--timeout=" + roundTimeout.String()}
	if slices.ContainsFunc(pods, pod.isBare) {
		args = append(args, "--force")
	}
	if slices.ContainsFunc(pods, pod.hasEmptyDir) {
		args = append(args, "--delete-emptydir-data")
	}
	if whole {
		args = append(args, "--disable-eviction")
	}
	_, err := c.Kubectl(ctx, "", args...)
	switch {
	case err == nil:
		return true, nil
	case drainTimedOutError.MatchString(err.Error()):
		return false, nil
	}
	return false, fmt.Errorf("kubectl drain: %w", engine.LastLine(err))
}

// drainTimedOutError matches the messages of kubectl drain when its time limit is over.
var drainTimedOutError = regexp.MustCompile(`global timeout reached|context deadline exceeded|timed out waiting`)

func (c *Client) CheckDrain(ctx context.Context, names []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*Timeout)
	defer cancel()
	nodes, err := c.Nodes(ctx)
	if errors.Is(err, ErrNoControlPlane) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		n, member := nodes[name]
		return !member || !c.mustDrain(ctx, n, o)
	})
	pods, err := c.readPods(ctx, names, o.Whole)
	if err != nil {
		return nil, fmt.Errorf("drain: %w", engine.LastLine(err))
	}
	all := map[string]engine.DrainCheck{}
	for _, name := range names {
		// A drain ignores budgets on a node that is not Ready.
		all[name] = checkPods(pods[name], o, IsReady(nodes[name]))
	}
	return all, nil
}
