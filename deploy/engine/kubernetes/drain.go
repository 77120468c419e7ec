package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// roundTimeout is the time limit of one kubectl drain command. evictPods repeats the command, and checks
// and reports the remaining pods after each command.
const roundTimeout = 5 * time.Second

// brokenTimeout is the time limit of the drain of a broken node, on which the end of pods cannot be
// observed.
const brokenTimeout = 10 * time.Second

// Drain implements [engine.Engine]. It cordons all given nodes and then runs kubectl drain for one node after
// the other. It returns an error if pods would be lost, or if a disruption budget blocks a drain
// permanently. Nodes that an administrator has cordoned are not changed.
func (e *Engine) Drain(ctx context.Context, names []string, o engine.DrainOptions, report engine.Report) error {
	return e.drainNodes(ctx, names, mustDrain, o, report)
}

// DrainForRemoval implements [engine.MemberRemover]. A node that cannot be reached is not drained, because
// the end of its pods cannot be observed.
func (e *Engine) DrainForRemoval(ctx context.Context, names []string, o engine.DrainOptions, report engine.Report) error {
	return e.drainNodes(ctx, names, e.mustDrainForRemoval, o, report)
}

// mustDrain reports whether Drain drains a node. It returns false if an administrator has cordoned the
// node.
func mustDrain(_ context.Context, n gjson.Result) bool {
	return drainMark(n).Exists() || !n.Get("spec.unschedulable").Bool()
}

// mustDrainForRemoval reports whether DrainForRemoval drains a node. It returns false if the node cannot be
// reached.
func (e *Engine) mustDrainForRemoval(ctx context.Context, n gjson.Result) bool {
	return e.isReachable(ctx, nodeName(n))
}

// drainedNode is a Node object with the value of drainedAnnotation that this drain has set.
type drainedNode struct {
	gjson.Result
	mark string
}

// drainNodes cordons the named nodes for which selects returns true, and then evicts their pods. If this
// fails for one node, drainNodes uncordons all nodes that it has cordoned.
func (e *Engine) drainNodes(ctx context.Context, names []string, selects func(context.Context, gjson.Result) bool, o engine.DrainOptions, report engine.Report) error {
	if len(names) == 0 {
		return nil
	}
	var nodes map[string]gjson.Result
	err := retryUnavailable(ctx, func() (err error) { nodes, err = e.listNodes(ctx); return err })
	if errors.Is(err, errNoControlPlane) {
		return nil
	}
	if err != nil {
		return &engine.DrainError{Node: names[0], Err: shortenError(ctx, err)}
	}
	var cordoned []drainedNode
	for _, name := range names {
		n, member := nodes[name]
		if !member || !selects(ctx, n) {
			continue
		}
		mark := ""
		err = retryUnavailable(ctx, func() (err error) { mark, err = e.cordon(ctx, name, n); return err })
		cordoned = append(cordoned, drainedNode{n, mark}) // also if cordon failed, since it may already have set the mark
		if err != nil {
			return e.undoDrain(ctx, cordoned, &engine.DrainError{Node: name, Err: err})
		}
	}
	for _, n := range cordoned {
		name := nodeName(n.Result)
		broken := slices.Contains(o.Broken, name) || !isReady(n.Result) // a node that is not Ready does not report the end of its pods to the API
		if err := e.evictPods(ctx, name, broken, o, func(text string) { report(name, text) }); err != nil {
			var blocked *engine.BlockedError
			if !errors.As(err, &blocked) { // a BlockedError already names the node
				err = &engine.DrainError{Node: name, Err: err}
			}
			return e.undoDrain(ctx, cordoned, err)
		}
	}
	return nil
}

// undoDrain uncordons nodes after a failed drain. It returns err, which is the error of the drain, joined
// with the errors of the uncordon.
func (e *Engine) undoDrain(ctx context.Context, nodes []drainedNode, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	errs := []error{err}
	for _, n := range nodes {
		name := nodeName(n.Result)
		undo := retryUnavailable(ctx, func() error { return e.removeDrainMark(ctx, name, n.mark) })
		if undo != nil && !wasCordonedBefore(n.mark) {
			undo = failure.On(name, fmt.Errorf("uncordon: %w; the node may still be cordoned: the next run uncordons it, or kubectl uncordon %s", shortenError(ctx, undo), name))
			var stuck *DrainTimeoutError
			if errors.As(err, &stuck) {
				stuck.Cordoned = true
			}
		}
		errs = append(errs, undo)
	}
	return errors.Join(errs...)
}

// undoTimeout is the time limit of undoDrain. It must be longer than the restart of a control plane, while
// the API is unavailable.
const undoTimeout = 30 * time.Second

// isReachable reports whether commands can be run on a node.
func (e *Engine) isReachable(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "true")
	return err == nil
}

// cordon sets drainedAnnotation on the node, cordons the node, and returns the value of the annotation. If
// cordon returns an error, it returns the value as well.
func (e *Engine) cordon(ctx context.Context, node string, n gjson.Result) (string, error) {
	cordoned := n.Get("spec.unschedulable").Bool()
	note := drainMark(n).String()
	if note == "" {
		note = time.Now().UTC().Format(time.RFC3339)
		if cordoned {
			note += cordonedSuffix
		}
		if _, err := e.runKubectl(ctx, "", "annotate", "--overwrite", "node", node, drainedAnnotation+"="+note); err != nil {
			return note, shortenError(ctx, err)
		}
	}
	if cordoned {
		return note, nil
	}
	if _, err := e.runKubectl(ctx, "", "cordon", node); err != nil {
		return note, shortenError(ctx, err)
	}
	return note, nil
}

// apiUnavailableError matches the messages of kubectl if the API does not answer. The API may be unavailable
// for some seconds after a control plane has changed.
var apiUnavailableError = regexp.MustCompile(`connection refused|connection to the server .* was refused|connection reset by peer|no answer within|TLS handshake timeout|unexpected EOF|\(ServiceUnavailable\)|etcdserver: `)

// retryUnavailable runs f. While f fails because the API is unavailable, it runs f again, for up to
// apiTimeout.
func retryUnavailable(ctx context.Context, f func() error) error {
	return retry(ctx, func(err error) bool { return apiUnavailableError.MatchString(err.Error()) || isRBACMissingError(err) }, f)
}

// retry runs f. While isTemporary returns true for the error of f, it runs f again, for up to apiTimeout.
func retry(ctx context.Context, isTemporary func(error) bool, f func() error) error {
	for end := time.Now().Add(apiTimeout); ; {
		err := f()
		if err == nil || !isTemporary(err) || time.Now().After(end) {
			return err
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return err
		}
	}
}

// shortenError returns the last line of an error, without the command lines of kubectl. If ctx has ended, it
// returns the cause of that.
func shortenError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return keepLastLine(err)
}

// evictPods evicts the pods of a cordoned node. It runs kubectl drain repeatedly, until no pod is left, and
// returns a DrainTimeoutError after drainTimeout. If the node is broken, the limit is brokenTimeout, and
// remaining pods are not an error.
func (e *Engine) evictPods(ctx context.Context, node string, broken bool, o engine.DrainOptions, report func(string)) error {
	limit := drainTimeout
	if broken {
		limit = brokenTimeout
	}
	begin := time.Now()
	for round := 0; ; round++ {
		var pods []pod
		if err := retryUnavailable(ctx, func() (err error) { pods, err = e.listPods(ctx, node); return err }); err != nil {
			return shortenError(ctx, err)
		}
		var daemonSets map[string]bool
		if err := retryUnavailable(ctx, func() (err error) { daemonSets, err = e.listDaemonSets(ctx); return err }); err != nil {
			return shortenError(ctx, err)
		}
		markOrphans(pods, daemonSets)
		if check := checkPods(pods, o); len(check.Blocked) > 0 {
			return &engine.BlockedError{Nodes: map[string][]engine.DrainItem{node: check.Blocked}}
		}
		took := time.Since(begin)
		if round == 0 {
			report("evicts " + formatCount(countEvictable(pods), "pod"))
		} else {
			left, err := e.reportRemaining(ctx, node, pods, o.Whole, report, took)
			switch {
			case broken && took >= limit:
				return nil
			case err != nil && !broken:
				return err
			case took >= limit:
				return &DrainTimeoutError{After: took, Remaining: left}
			}
		}
		over := false
		err := retryUnavailable(ctx, func() (err error) { over, err = e.runDrainRound(ctx, node, pods, o.Whole); return err })
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

func countEvictable(pods []pod) int {
	n := 0
	for _, p := range pods {
		if p.isEvictable() {
			n++
		}
	}
	return n
}

// reportRemaining reports the pods that are still to be evicted, each with the reason, and returns this list
// as text. It returns a BlockedError if a disruption budget blocks the drain permanently, unless the whole cluster is
// drained.
func (e *Engine) reportRemaining(ctx context.Context, node string, pods []pod, whole bool, report func(string), took time.Duration) (string, error) {
	var budgets budgets
	if !whole {
		var err error
		if budgets, err = e.listBudgets(ctx); err != nil {
			return "", shortenError(ctx, err)
		}
	}
	var texts []string
	var blocked []engine.DrainItem
	for _, p := range pods {
		if !p.isEvictable() {
			continue
		}
		text := p.describeWait()
		if stop := budgets.findBlockingBudget(p); stop.name != "" && !p.isTerminating() {
			text = stop.String()
			if stop.permanent {
				blocked = append(blocked, stop.toDrainItem(p))
			}
		}
		texts = append(texts, p.name()+" "+text)
	}
	if len(blocked) > 0 {
		return "", &engine.BlockedError{Nodes: map[string][]engine.DrainItem{node: blocked}}
	}
	text := strings.Join(texts[:min(len(texts), maxShownPods)], "; ")
	if more := len(texts) - maxShownPods; more > 0 {
		text += fmt.Sprintf("; and %s more", formatCount(more, "pod"))
	}
	if text != "" {
		report(fmt.Sprintf("drained for %v: %s left: %s", took.Round(time.Second), formatCount(len(texts), "pod"), text))
	}
	return text, nil
}

// maxShownPods is the maximum number of pods in the text of reportRemaining.
const maxShownPods = 4

// DrainTimeoutError is returned if pods remain after the time limit of a drain.
type DrainTimeoutError struct {
	After     time.Duration
	Remaining string // the remaining pods, each with the reason
	Cordoned  bool   // the node may still be cordoned, because the uncordon has failed
}

func (e *DrainTimeoutError) Error() string {
	return fmt.Sprintf("pods remain after %v: %s", e.After.Round(time.Second), e.Remaining)
}

// Hint returns whether the node is uncordoned, and how to continue.
func (e *DrainTimeoutError) Hint() string {
	const again = "run it again when the pods can be evicted; --no-drain changes the node without a drain"
	if e.Cordoned {
		return again
	}
	return "the node is uncordoned again; " + again
}

// runDrainRound runs kubectl drain for at most roundTimeout, and reports whether the node is drained. It sets
// --force and --delete-emptydir-data only if one of the given pods needs the flag, so that kubectl does not
// delete pods that need a flag and were created after the check. If the whole cluster is drained, it ignores disruption
// budgets: they would wait for pods that have no node to start on.
func (e *Engine) runDrainRound(ctx context.Context, node string, pods []pod, whole bool) (bool, error) {
	args := []string{"drain", node, "--ignore-daemonsets", "--timeout=" + roundTimeout.String()}
	bare, local := false, false
	for _, p := range pods {
		bare = bare || p.isBare()
		local = local || p.hasEmptyDir()
	}
	if bare {
		args = append(args, "--force")
	}
	if local {
		args = append(args, "--delete-emptydir-data")
	}
	if whole {
		args = append(args, "--disable-eviction")
	}
	_, err := e.runKubectl(ctx, "", args...)
	switch {
	case err == nil:
		return true, nil
	case drainTimedOutError.MatchString(err.Error()):
		return false, nil
	}
	return false, fmt.Errorf("kubectl drain: %w", keepLastLine(err))
}

// drainTimedOutError matches the messages of kubectl drain when its time limit is over.
var drainTimedOutError = regexp.MustCompile(`global timeout reached|context deadline exceeded|timed out waiting`)

// CheckDrain implements [engine.DrainChecker].
func (e *Engine) CheckDrain(ctx context.Context, names []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	return e.checkDrains(ctx, names, mustDrain, o)
}

// CheckDrainForRemoval implements [engine.DrainChecker].
func (e *Engine) CheckDrainForRemoval(ctx context.Context, names []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	return e.checkDrains(ctx, names, e.mustDrainForRemoval, o)
}

func (e *Engine) checkDrains(ctx context.Context, names []string, selects func(context.Context, gjson.Result) bool, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*apiTimeout)
	defer cancel()
	nodes, err := e.listNodes(ctx)
	if errors.Is(err, errNoControlPlane) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	all := map[string]engine.DrainCheck{}
	var budgets budgets
	var daemonSets map[string]bool
	for _, name := range names {
		n, member := nodes[name]
		if !member || !selects(ctx, n) {
			continue
		}
		pods, err := e.listPods(ctx, name)
		if err != nil {
			return nil, failure.On(name, fmt.Errorf("drain: %w", keepLastLine(err)))
		}
		if budgets == nil {
			if budgets, err = e.listBudgets(ctx); err != nil {
				return nil, failure.On(name, fmt.Errorf("drain: %w", keepLastLine(err)))
			}
		}
		if daemonSets == nil {
			if daemonSets, err = e.listDaemonSets(ctx); err != nil {
				return nil, failure.On(name, fmt.Errorf("drain: %w", keepLastLine(err)))
			}
		}
		markOrphans(pods, daemonSets)
		check := checkPods(pods, o)
		for _, p := range pods {
			// evictPods ignores budgets on a node that is not Ready, so they are not reported here.
			if stop := budgets.findBlockingBudget(p); stop.permanent && p.isEvictable() && !p.isTerminating() && isReady(n) && !o.Whole {
				check.Blocked = append(check.Blocked, stop.toDrainItem(p))
			}
		}
		all[name] = check
	}
	return all, nil
}

// drainMark returns the value of drainedAnnotation of a Node object.
func drainMark(n gjson.Result) gjson.Result {
	return n.Get("metadata.annotations." + gjson.Escape(drainedAnnotation))
}

// wasCordonedBefore reports whether the node with this drain mark was already cordoned before the drain.
func wasCordonedBefore(mark string) bool { return strings.HasSuffix(mark, cordonedSuffix) }
