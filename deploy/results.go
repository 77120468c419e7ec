package deploy

import (
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// results holds what a run has found out about its nodes and done to them so far. mu guards the fields below it
// while nodes are deployed.
type results struct {
	report func(state.NodeResult, string, error) state.NodeResult // see Deployer.reportResult
	record *runs.Recorder
	goal   node.Goal

	mu        sync.Mutex
	observed  map[string]activate.Node // by node name: the inspection before this run changed the node
	outcomes  map[string]state.Outcome
	order     []nixeval.Node       // nodes in the order in which their first outcomes were recorded
	changes   map[string]change    // by node name; only nodes on which a system was activated
	deployed  map[string]node.Task // by node name; only nodes that were deployed without an error
	notJoined []string             // names of nodes that could not be admitted when they were deployed
}

// change is an activation of a system on a node.
type change struct {
	task   node.Task
	result *activate.Result
}

// recordOutcome stores the outcome of a node, writes the node's result to the record of the run, and sends the
// result as an event.
func (r *results) recordOutcome(n nixeval.Node, c nixeval.Closure, outcome state.Outcome, text string, err error) {
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
	if a := r.changeOf(n).result; a != nil {
		result.Before, result.After = node.GenerationOf(a.Before, a.Before.Current), node.GenerationOf(a.After, a.After.Current)
	}
	r.report(result, text, err)
}

// recordAllSkipped writes to the record of the run that all nodes were skipped because of err.
func (r *results) recordAllSkipped(nodes []nixeval.Node, err error) {
	for _, n := range nodes {
		r.record.Result(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped, Error: err.Error()})
	}
}

// recordObserved stores what a node was like before this run changes it.
func (r *results) recordObserved(n nixeval.Node, observed activate.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observed == nil {
		r.observed = map[string]activate.Node{}
	}
	r.observed[n.Name] = observed
}

// recordNotJoined records that a node could not be admitted to the cluster when it was deployed.
func (r *results) recordNotJoined(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notJoined = append(r.notJoined, name)
}

// hasNotJoined reports whether a node could not be admitted.
func (r *results) hasNotJoined() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.notJoined) > 0
}

// hasOutcome reports whether the run has an outcome for a node.
func (r *results) hasOutcome(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, recorded := r.outcomes[name]
	return recorded
}

// recordChange stores the activation of a node, which contains the state of the node before it.
func (r *results) recordChange(t node.Task, result activate.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == nil {
		r.changes = map[string]change{}
	}
	r.changes[t.Node.Name] = change{t, &result}
}

// changedNodes returns the nodes on which this run activated a system that was not rolled back.
func (r *results) changedNodes() []nixeval.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.order), func(n nixeval.Node) bool {
		c, ok := r.changes[n.Name]
		return !ok || c.result.RolledBack()
	})
}

// hasOtherSystem reports whether the node runs or boots another system because of this run.
func (r *results) hasOtherSystem(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.changes[name].result
	known := a != nil && a.After.Current != ""
	return known && r.outcomes[name] != state.RolledBack && (a.After.Current != a.Before.Current || a.After.Profile != a.Before.Profile)
}

// recordDeployed stores the task of a node that was deployed without an error.
func (r *results) recordDeployed(t node.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deployed == nil {
		r.deployed = map[string]node.Task{}
	}
	r.deployed[t.Node.Name] = t
}

// taskOf returns the task of a node that was deployed without an error, or nil.
func (r *results) taskOf(n nixeval.Node) *node.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.deployed[n.Name]; ok {
		return &t
	}
	return nil
}

// replaceOutcomes replaces outcomes by those of results that were reported already.
func (r *results) replaceOutcomes(results []state.NodeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, result := range results {
		r.outcomes[result.Node] = result.Outcome
	}
}

// changeOf returns the activation of a node, which is empty if no system was activated.
func (r *results) changeOf(n nixeval.Node) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes[n.Name]
}

// recordNotStarted records a node as skipped if the run was cancelled before the node's task began.
func (r *results) recordNotStarted(n nixeval.Node, err error) {
	if err != nil && !r.hasOutcome(n.Name) {
		r.recordOutcome(n, nixeval.Closure{}, state.Skipped, "skipped: not started", nil)
	}
}

// formatRunSummary formats the number of nodes per outcome: `2 switched, 1 unchanged`.
func (r *results) formatRunSummary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return formatOutcomeCounts(slices.Collect(maps.Values(r.outcomes)), r.outcomeWord)
}

// outcomeWord returns the word for an outcome in the summary of a run with this goal.
func (r *results) outcomeWord(o state.Outcome) string {
	if o == state.Switched && !r.goal.Activates() {
		return map[node.Goal]string{node.Push: "copied", node.UploadKeys: "updated"}[r.goal]
	}
	if o == state.Unchanged && r.goal == node.DryActivate {
		return "looked at"
	}
	return string(o)
}
