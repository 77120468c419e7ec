package deploy

import (
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// nodeResults holds the results of a run's nodes so far. mu guards the fields while nodes are deployed.
type nodeResults struct {
	mu          sync.Mutex
	outcomes    map[string]state.Outcome
	order       []nixeval.Node             // nodes in the order in which their first outcomes were recorded
	activations map[string]activate.Result // by node name; only nodes on which a system was activated
	notJoined   []string                   // names of nodes that could not be admitted when they were deployed
}

// recordOutcome stores the outcome of a node, writes the node's result to the record of the run, and sends the
// result as an event.
func (r *run) recordOutcome(n nixeval.Node, c nixeval.Closure, outcome state.Outcome, text string, err error) {
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
	if a, ok := r.activationOf(n); ok {
		result.Before, result.After = node.GenerationOf(a.Before, a.Before.Current), node.GenerationOf(a.After, a.After.Current)
	}
	r.reportResult(result, text, err)
}

// recordAllSkipped writes to the record of the run that all nodes were skipped because of err.
func (r *run) recordAllSkipped(nodes []nixeval.Node, err error) {
	for _, n := range nodes {
		r.Record.Result(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped, Error: err.Error()})
	}
}

// recordActivation stores the result of a node's activation, which contains the state of the node before it.
func (r *run) recordActivation(n nixeval.Node, result activate.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.activations == nil {
		r.activations = map[string]activate.Result{}
	}
	r.activations[n.Name] = result
}

// changedNodes returns the nodes on which this run activated a system that was not rolled back.
func (r *run) changedNodes() []nixeval.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.order), func(n nixeval.Node) bool {
		result, ok := r.activations[n.Name]
		return !ok || result.RolledBack()
	})
}

func (r *run) stateBefore(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.activations[n.Name].Before
}

func (r *run) activationOf(n nixeval.Node) (activate.Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.activations[n.Name]
	return a, ok
}

// recordNotStarted records a node as skipped if the run was cancelled before the node's task began.
func (r *run) recordNotStarted(n nixeval.Node, err error) {
	r.mu.Lock()
	_, reported := r.outcomes[n.Name]
	r.mu.Unlock()
	if err != nil && !reported {
		r.recordOutcome(n, nixeval.Closure{}, state.Skipped, "skipped: not started", nil)
	}
}

// formatRunSummary formats the number of nodes per outcome: `2 switched, 1 unchanged`.
func (r *run) formatRunSummary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return formatOutcomeCounts(slices.Collect(maps.Values(r.outcomes)), r.outcomeWord)
}

// outcomeWord returns the word for an outcome in the summary of a run with this goal.
func (r *run) outcomeWord(o state.Outcome) string {
	if o == state.Switched && !r.Goal.Activates() {
		return map[node.Goal]string{node.Push: "copied", node.UploadKeys: "updated"}[r.Goal]
	}
	if o == state.Unchanged && r.Goal == node.DryActivate {
		return "looked at"
	}
	return string(o)
}
