package deploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// tally keeps what became of the nodes of a run.
type tally struct {
	mu       sync.Mutex
	outcomes map[string]state.Outcome
	order    []nixeval.Node
	results  map[string]activate.Result // of nodes that were switched
	outside  []string                   // that could not be let in when they were deployed
}

// done reports a node's result, once: to the record, and to whoever watches.
func (r *run) done(n nixeval.Node, c nixeval.Closure, outcome state.Outcome, text string, err error) {
	r.mu.Lock()
	if r.outcomes == nil {
		r.outcomes = map[string]state.Outcome{}
	}
	if _, again := r.outcomes[n.Name]; !again {
		r.order = append(r.order, n)
	}
	r.outcomes[n.Name] = outcome
	r.mu.Unlock()
	result := state.NodeResult{Node: n.Name, Unit: n.Unit, Path: c.Out, Outcome: outcome}
	if a, ok := r.resultOf(n); ok {
		result.Before, result.After = generationOf(a.Before, a.Before.Current), generationOf(a.After, a.After.Current)
	}
	if err != nil {
		result.Error = err.Error()
		text = "failed: " + brief(n.Name, err)
		if outcome == state.RolledBack {
			text = "rolled back: " + brief(n.Name, err)
		}
	}
	r.Record.Result(result)
	r.Send.Send(event.Event{
		Kind: event.NodeResult, Phase: event.Deploy, Node: n.Name, Text: text,
		Failed: err != nil || outcome == state.Skipped,
	})
}

// brief is an error in a line, without what the line says already.
func brief(node string, err error) string {
	var failed *activate.FailedError
	if errors.As(err, &failed) {
		return failed.Brief()
	}
	var lost *activate.LostSightError
	if errors.As(err, &lost) {
		return lost.Brief()
	}
	var boot *BootError
	if errors.As(err, &boot) {
		text, _, _ := strings.Cut(strings.TrimPrefix(boot.Error(), node+": "), "\n")
		return text
	}
	var down *remote.UnreachableError
	if errors.As(err, &down) {
		err = down // not what we were about to do there
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), node+": "), "\n")
	return text
}

func (r *run) skipAll(nodes []nixeval.Node, err error) {
	for _, n := range nodes {
		r.Record.Result(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped, Error: err.Error()})
	}
}

// changed notes that a node was switched, and what it was like before.
func (r *run) changed(n nixeval.Node, result activate.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results == nil {
		r.results = map[string]activate.Result{}
	}
	r.results[n.Name] = result
}

// switched are the nodes that run, or boot, something else than before this run.
func (r *run) switched() []nixeval.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.order), func(n nixeval.Node) bool {
		result, ok := r.results[n.Name]
		return !ok || result.RolledBack()
	})
}

func (r *run) before(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[n.Name].Before
}

func (r *run) resultOf(n nixeval.Node) (activate.Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.results[n.Name]
	return a, ok
}

// notBegun reports a node that cancelling came before.
func (r *run) notBegun(n nixeval.Node, err error) {
	r.mu.Lock()
	_, reported := r.outcomes[n.Name]
	r.mu.Unlock()
	if err != nil && !reported {
		r.done(n, nixeval.Closure{}, state.Skipped, "skipped: not begun", nil)
	}
}

// summary counts outcomes: `2 switched, 1 unchanged`.
func (r *run) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[state.Outcome]int{}
	for _, o := range r.outcomes {
		counts[o]++
	}
	var parts []string
	for _, o := range []state.Outcome{state.Switched, state.Unchanged, state.RolledBack, state.Failed, state.Skipped} {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], r.verb(o)))
		}
	}
	return strings.Join(parts, ", ")
}

// verb is the word for an outcome under this goal.
func (r *run) verb(o state.Outcome) string {
	if o == state.Switched && !r.Goal.activates() {
		return map[Goal]string{Push: "copied", UploadKeys: "updated"}[r.Goal]
	}
	if o == state.Unchanged && r.Goal == DryActivate {
		return "looked at"
	}
	return string(o)
}

func activateText(result activate.Result, before activate.Node) string {
	var text string
	switch result.Outcome {
	case activate.BootDefault:
		text = fmt.Sprintf("generation %d boots next", result.After.Generation)
		if result.After.Current == result.After.Profile {
			text = fmt.Sprintf("ran already; now it is generation %d", result.After.Generation)
		}
	case activate.Activated:
		text = "runs until the next boot"
	case activate.Committed:
		text = fmt.Sprintf("generation %d → %d", before.Generation, result.After.Generation)
		if before.Generation == 0 {
			text = fmt.Sprintf("generation %d, the first", result.After.Generation)
		}
	default: // nothing was left to do
		text = fmt.Sprintf("generation %d, as the run before left it", result.After.Generation)
	}
	if len(result.AlreadyFailing) > 0 {
		text += "; failed before, too: " + strings.Join(result.AlreadyFailing, ", ")
	}
	if result.RebootNeeded() {
		text += "; reboot for the new kernel"
	}
	return text
}

func dryText(result activate.Result) string {
	text := unitsText(result.Dry)
	var unknown *activate.UnknownProfileError
	if errors.As(result.Refused, &unknown) {
		text += "; but apply will refuse to replace " + unknown.Path + ", which was not deployed from here"
	}
	return text
}

func unitsText(d *activate.Dry) string {
	if d == nil {
		return "nothing would change"
	}
	var parts []string
	for _, p := range []struct {
		verb  string
		units []string
	}{{"stop", d.Stop}, {"restart", d.Restart}, {"reload", d.Reload}, {"start", d.Start}} {
		if len(p.units) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.units, ", "))
		}
	}
	if len(parts) == 0 {
		return "would change no unit"
	}
	return "would " + strings.Join(parts, "; ")
}
