package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

// roundTimeout is how long kubectl drain runs at a time. After each round the rest is looked at
// and reported.
const roundTimeout = 5 * time.Second

// brokenTimeout bounds the drain of a node on which pods cannot be seen to end.
const brokenTimeout = 10 * time.Second

// Drain implements [engine.Engine]. It cordons the node, refuses to go on where pods would be lost
// or a disruption budget would stop it for good, and then runs kubectl drain. A node that is to be
// removed and does not answer is not drained: its pods cannot be seen to end.
func (e *Engine) Drain(ctx context.Context, node string, o engine.DrainOptions, report func(string)) error {
	var nodes map[string]gjson.Result
	err := whileAway(ctx, func() (err error) { nodes, err = e.nodes(ctx); return err })
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: drain: %w", node, shorten(ctx, err))
	}
	n, member := nodes[node]
	if !member || !e.drains(ctx, n, node, o) {
		return nil
	}
	mark := ""
	err = whileAway(ctx, func() (err error) { mark, err = e.cordon(ctx, node, n); return err })
	if err == nil {
		o.Broken = o.Broken || !ready(n) // what ends there, nobody tells the API
		err = e.evict(ctx, node, o, report)
	}
	if err == nil {
		return nil
	}
	var blocked *engine.BlockedError
	if !errors.As(err, &blocked) { // it names the node itself
		err = fmt.Errorf("%s: drain: %w", node, err)
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	undo := whileAway(back, func() error { return e.uncordon(back, node, mark) })
	if undo != nil && !isTheirs(mark) {
		undo = fmt.Errorf("%w; the node may still be cordoned: the next run gives it work again, or kubectl uncordon %s", undo, node)
		var stuck *StuckError
		if errors.As(err, &stuck) {
			stuck.Cordoned = true
		}
	}
	return errors.Join(err, undo)
}

// undoTimeout bounds the way back from a drain that has failed. A control plane that restarts may be
// without its API for most of it.
const undoTimeout = 30 * time.Second

// drains tells whether Drain touches the node. One that somebody else has cordoned is theirs to
// drain and to uncordon, unless it is removed.
func (e *Engine) drains(ctx context.Context, n gjson.Result, node string, o engine.DrainOptions) bool {
	if o.ForGood {
		return e.answers(ctx, node)
	}
	return mark(n).Exists() || !n.Get("spec.unschedulable").Bool()
}

// answers tells whether commands can be run on a node.
func (e *Engine) answers(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "true")
	return err == nil
}

// cordon keeps new pods away, and returns the mark by which the node is known to be drained by us.
func (e *Engine) cordon(ctx context.Context, node string, n gjson.Result) (string, error) {
	cordoned := n.Get("spec.unschedulable").Bool()
	note := mark(n).String()
	if note == "" {
		note = time.Now().UTC().Format(time.RFC3339)
		if cordoned {
			note += theirs
		}
		if _, err := e.kubectl(ctx, "", "annotate", "--overwrite", "node", node, left+"="+note); err != nil {
			return note, shorten(ctx, err)
		}
	}
	if cordoned {
		return note, nil
	}
	if _, err := e.kubectl(ctx, "", "cordon", node); err != nil {
		return note, shorten(ctx, err)
	}
	return note, nil
}

// away is what kubectl says of an API that does not answer. A control plane that has just changed may be
// without it for some seconds.
var away = regexp.MustCompile(`connection refused|connection to the server .* was refused|connection reset by peer|no answer within|TLS handshake timeout|unexpected EOF|\(ServiceUnavailable\)|etcdserver: `)

// whileAway tries again for a while if the API does not answer.
func whileAway(ctx context.Context, f func() error) error {
	for end := time.Now().Add(allTimeout); ; {
		err := f()
		if err == nil || !away.MatchString(err.Error()) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return err
		}
	}
}

// shorten leaves the command line out of an error, which may be there once for each control plane.
func shorten(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return brief(err)
}

// evict moves the pods of a cordoned node away.
func (e *Engine) evict(ctx context.Context, node string, o engine.DrainOptions, report func(string)) error {
	limit := drainTimeout
	if o.Broken {
		limit = brokenTimeout
	}
	begin := time.Now()
	for round := 0; ; round++ {
		var pods []pod
		if err := whileAway(ctx, func() (err error) { pods, err = e.podsOn(ctx, node); return err }); err != nil {
			return shorten(ctx, err)
		}
		var daemonSets map[string]bool
		if err := whileAway(ctx, func() (err error) { daemonSets, err = e.daemonSets(ctx); return err }); err != nil {
			return shorten(ctx, err)
		}
		markOrphans(pods, daemonSets)
		if check := checkPods(pods, o); len(check.Blocked) > 0 {
			return &engine.BlockedError{Nodes: map[string][]engine.DrainItem{node: check.Blocked}}
		}
		took := time.Since(begin)
		if round == 0 {
			report("evicts " + count(evictable(pods), "pod"))
		} else {
			left, err := e.reportLeft(ctx, node, pods, report, took)
			switch {
			case o.Broken && took >= limit:
				return nil
			case err != nil && !o.Broken:
				return err
			case took >= limit:
				return &StuckError{After: took, Left: left}
			}
		}
		over := false
		err := whileAway(ctx, func() (err error) { over, err = e.evictRound(ctx, node, pods); return err })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case over || err != nil && o.Broken && time.Since(begin) >= limit:
			return nil
		case err != nil && !o.Broken:
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func evictable(pods []pod) int {
	n := 0
	for _, p := range pods {
		if p.evicted() {
			n++
		}
	}
	return n
}

// reportLeft reports what the drain waits for, and returns it. The error says that it would wait without end.
func (e *Engine) reportLeft(ctx context.Context, node string, pods []pod, report func(string), took time.Duration) (string, error) {
	budgets, err := e.budgets(ctx)
	if err != nil {
		return "", shorten(ctx, err)
	}
	var texts []string
	var blocked []engine.DrainItem
	for _, p := range pods {
		if !p.evicted() {
			continue
		}
		text := p.waits()
		if stop := budgets.stops(p); stop.name != "" && !p.terminates() {
			text = stop.String()
			if stop.forever {
				blocked = append(blocked, stop.item(p))
			}
		}
		texts = append(texts, p.name()+" "+text)
	}
	if len(blocked) > 0 {
		return "", &engine.BlockedError{Nodes: map[string][]engine.DrainItem{node: blocked}}
	}
	text := strings.Join(texts[:min(len(texts), shownPods)], "; ")
	if more := len(texts) - shownPods; more > 0 {
		text += fmt.Sprintf("; and %s more", count(more, "pod"))
	}
	if text != "" {
		report(fmt.Sprintf("drained for %v: %s left: %s", took.Round(time.Second), count(len(texts), "pod"), text))
	}
	return text, nil
}

const shownPods = 4 // in a line

// StuckError says which pods a drain could not move in time.
type StuckError struct {
	After time.Duration
	Left  string // pods, each with what it waits for
	// Cordoned: the node could not be uncordoned afterwards.
	Cordoned bool
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("not done after %v: %s", e.After.Round(time.Second), e.Left)
}

// Hint says what to do about it.
func (e *StuckError) Hint() string {
	const again = "run it again once the pods can go, or leave them where they are with --no-drain"
	if e.Cordoned {
		return again
	}
	return "the node takes work as before; " + again
}

// evictRound runs kubectl drain for a short time, with the permissions that these pods need and no
// more: what comes between is not deleted by them. It returns true once the node is drained.
func (e *Engine) evictRound(ctx context.Context, node string, pods []pod) (bool, error) {
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
	_, err := e.kubectl(ctx, "", args...)
	switch {
	case err == nil:
		return true, nil
	case unfinished.MatchString(err.Error()):
		return false, nil
	}
	return false, fmt.Errorf("kubectl drain: %w", brief(err))
}

// unfinished is what kubectl drain says when its time is up.
var unfinished = regexp.MustCompile(`global timeout reached|context deadline exceeded|timed out waiting`)

// CheckDrain implements [engine.DrainChecker].
func (e *Engine) CheckDrain(ctx context.Context, names []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*allTimeout)
	defer cancel()
	nodes, err := e.nodes(ctx)
	if errors.Is(err, errNone) {
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
		if !member || !e.drains(ctx, n, name, o) {
			continue
		}
		pods, err := e.podsOn(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: drain: %w", name, brief(err))
		}
		if budgets == nil {
			if budgets, err = e.budgets(ctx); err != nil {
				return nil, fmt.Errorf("%s: drain: %w", name, brief(err))
			}
		}
		if daemonSets == nil {
			if daemonSets, err = e.daemonSets(ctx); err != nil {
				return nil, fmt.Errorf("%s: drain: %w", name, brief(err))
			}
		}
		markOrphans(pods, daemonSets)
		check := checkPods(pods, o)
		for _, p := range pods {
			// The drain of a node that is not Ready goes on in spite of budgets.
			if stop := budgets.stops(p); stop.forever && p.evicted() && !p.terminates() && ready(n) {
				check.Blocked = append(check.Blocked, stop.item(p))
			}
		}
		all[name] = check
	}
	return all, nil
}

func mark(n gjson.Result) gjson.Result {
	return n.Get("metadata.annotations." + gjson.Escape(left))
}

// isTheirs tells whether somebody else had cordoned the node before we drained it.
func isTheirs(mark string) bool { return strings.HasSuffix(mark, theirs) }
