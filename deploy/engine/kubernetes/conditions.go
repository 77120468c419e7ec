package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	away := func(probe func(context.Context, []string) error) func(context.Context) error {
		return func(ctx context.Context) error { return probe(ctx, o.Away) }
	}
	conditions := []check.Condition{
		{Name: "the API answers", Probe: away(e.checkAPI), Explain: e.explainMembers(e.IsControlPlane)},
		{Name: event.Count(len(e.Cluster.Members), "node") + " Ready", Probe: away(e.checkNodesReady), Explain: e.explainNodes},
		{Name: "system pods run", Probe: away(e.checkSystemPods), Explain: e.explainSystemPods},
	}
	s, err := e.settings() // no condition for objects is added, because every probe above already fails with the error of settings
	for _, name := range slices.Sorted(maps.Keys(s.Checks)) {
		o := s.Checks[name]
		conditions = append(conditions, check.Condition{Name: o.String(), Probe: func(ctx context.Context) error { return e.CheckObject(ctx, o) }})
	}
	workers := e.NodesOf(Worker)
	if len(workers) == 0 {
		workers = e.NodesOf(ControlPlane)
	}
	if o.Deep {
		conditions = append(conditions, check.Condition{Name: "pods reach each other and a Service", Every: 2 * time.Second, Limit: 2 * time.Minute, Probe: func(ctx context.Context) error {
			if err != nil {
				return err
			}
			return e.CheckPodNetwork(ctx, s.Probe, workers[0], workers[len(workers)-1])
		}})
	}
	return conditions
}

// checkAPI returns nil if the API server of every control plane answers. It asks each API server, because the node of a new
// control plane is Ready before its own API server answers. While the cluster is being created, the error contains the phases
// (such as init or join) of the control planes.
func (e *Engine) checkAPI(ctx context.Context, away []string) error {
	all := e.NodesOf(ControlPlane)
	if len(all) == 0 {
		return ErrNoControlPlane
	}
	all = slices.DeleteFunc(all, func(node string) bool { return slices.Contains(away, node) })
	err := fleet.ForAll(all, func(node string) error { return e.checkOwnAPI(ctx, node) })
	if err != nil {
		return errors.New(event.Abbreviate(strings.Split(err.Error(), "\n"), ", "))
	}
	return nil
}

func (e *Engine) checkNodesReady(ctx context.Context, away []string) error {
	all, err := e.List(ctx, "get", "nodes")
	if err != nil {
		return engine.LastLine(err)
	}
	nodes, readyHollow := SplitHollow(all)
	var absent, notReady, parts []string
	for _, m := range e.Cluster.Members {
		n, registered := nodes[m.Node]
		var s settings
		if err := m.ReadSettings(&s); err != nil {
			return err
		}
		if s.Hollow != readyHollow[m.Node] {
			parts = append(parts, fmt.Sprintf("%s: %d hollow nodes are Ready, want %d", m.Node, readyHollow[m.Node], s.Hollow))
		}
		delete(readyHollow, m.Node)
		switch {
		case slices.Contains(away, m.Node):
		case !registered && len(absent) < maxExplained:
			absent = append(absent, strings.TrimSuffix(m.Node+", at "+e.describeJoin(ctx, m.Node), ", at "))
		case !registered:
			absent = append(absent, m.Node)
		case !IsReady(n):
			notReady = append(notReady, m.Node)
		}
		delete(nodes, m.Node)
	}
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+": "+event.Abbreviate(names, ", "))
		}
	}
	add("hollow nodes of machines that are not in the hive", nixeval.SortedNames(readyHollow))
	add("not registered", absent)
	add("not Ready", notReady)
	add("registered, but not in the hive", nixeval.SortedNames(nodes))
	if len(parts) > 0 {
		return errors.New(strings.Join(parts, "; "))
	}
	return nil
}

func (e *Engine) checkSystemPods(ctx context.Context, away []string) error {
	all, waiting, err := e.UnreadySystemPods(ctx)
	waiting = slices.DeleteFunc(waiting, func(p gjson.Result) bool { return slices.Contains(away, p.Get("spec.nodeName").String()) })
	switch {
	case err != nil:
		return engine.LastLine(err)
	case all == 0:
		return errors.New("there are no system pods")
	case len(waiting) == 0:
		return nil
	}
	var names []string
	for _, p := range waiting {
		names = append(names, NodeName(p)+WaitingReason(p))
	}
	return errors.New("not ready: " + event.Abbreviate(names, ", "))
}

func (e *Engine) explainSystemPods(ctx context.Context) string {
	_, waiting, _ := e.UnreadySystemPods(ctx) // ignore the error: if the API does not answer, there is nothing to explain
	var texts []string
	for _, p := range waiting[:min(maxExplained, len(waiting))] {
		name := NodeName(p)
		texts = append(texts, fmt.Sprintf("%s on %s%s", name, p.Get("spec.nodeName").String(), WaitingReason(p)))
		out, _ := e.Kubectl(ctx, "", "-n", "kube-system", "logs", name, "--all-containers", "--tail=3") // the error is ignored: a pod that has not started has no log
		for line := range strings.Lines(strings.TrimSpace(string(out))) {
			texts = append(texts, "  "+strings.TrimSpace(line))
		}
	}
	return strings.Join(texts, "\n")
}

// explainNodes returns the phases (such as join) and the last log lines of members that are not Ready.
func (e *Engine) explainNodes(ctx context.Context) string {
	nodes, err := e.Nodes(ctx)
	return e.explainMembers(func(name string) bool { return err != nil || !IsReady(nodes[name]) })(ctx)
}

// maxExplained is the maximum number of nodes or pods whose logs an error quotes. Further nodes or pods usually have the same problem.
const maxExplained = 3

// explainMembers returns a function that quotes the phases (such as join) and the last log lines of members. The function quotes
// at most maxExplained of the members for which which returns true.
func (e *Engine) explainMembers(which func(node string) bool) func(context.Context) string {
	return func(ctx context.Context) string {
		var texts []string
		for _, m := range e.Cluster.Members {
			if len(texts) < maxExplained && which(m.Node) {
				phase, text := e.readPhase(ctx, m.Node)
				texts = append(texts, m.Node+": "+cmp.Or(phase, "no phase")+text+"\n"+e.ReadLog(ctx, m.Node, setupUnit, kubeletUnit))
			}
		}
		return strings.Join(texts, "\n")
	}
}
