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
	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

func (e checker) Conditions(o engine.CheckOptions) []check.Condition {
	e.away = o.Away
	conditions := []check.Condition{
		{Name: "the API answers", Probe: e.checkAPI, Explain: e.explainMembers(e.IsControlPlane)},
		{Name: event.Count(len(e.Cluster.Members), "node") + " Ready", Probe: e.checkNodesReady, Explain: e.explainNodes},
		{Name: "system pods run", Probe: e.checkSystemPods, Explain: e.explainSystemPods},
	}
	s, err := e.settings() // no condition for objects is added, because every probe above already fails with the error of settings
	for _, name := range slices.Sorted(maps.Keys(s.Checks)) {
		o := s.Checks[name]
		conditions = append(conditions, check.Condition{Name: o.String(), Probe: func(ctx context.Context) error { return e.CheckObject(ctx, o) }})
	}
	if workers := e.schedulableNodes(); o.Deep {
		conditions = append(conditions, check.Condition{Name: "pods reach each other and a Service", Every: 2 * time.Second, Limit: 2 * time.Minute, Probe: func(ctx context.Context) error {
			if err != nil {
				return err
			}
			return e.CheckPodNetwork(ctx, s.Probe, workers[0], workers[len(workers)-1])
		}})
	}
	return conditions
}

// schedulableNodes returns the workers in the hive, or the control planes if the hive has no workers.
func (e checker) schedulableNodes() []string {
	if workers := e.NodesOf(Worker); len(workers) > 0 {
		return workers
	}
	return e.NodesOf(ControlPlane)
}

// checkAPI returns nil if the API server of every control plane answers. It asks each API server, because the node of a new
// control plane is Ready before its own API server answers. While the cluster is being created, the error contains the phases
// (such as init or join) of the control planes.
func (e checker) checkAPI(ctx context.Context) error {
	all := e.NodesOf(ControlPlane)
	if len(all) == 0 {
		return api.ErrNoControlPlane
	}
	all = slices.DeleteFunc(all, func(node string) bool { return slices.Contains(e.away, node) })
	err := fleet.ForAll(all, func(node string) error { return e.checkOwnAPI(ctx, node) })
	if err != nil {
		return errors.New(event.Abbreviate(strings.Split(err.Error(), "\n"), ", "))
	}
	return nil
}

func (e checker) checkNodesReady(ctx context.Context) error {
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return engine.LastLine(err)
	}
	var absent, notReady []string
	for _, m := range e.Cluster.Members {
		n, registered := nodes[m.Node]
		switch {
		case slices.Contains(e.away, m.Node):
		case !registered && len(absent) < maxExplained:
			absent = append(absent, strings.TrimSuffix(m.Node+", at "+e.describeJoin(ctx, m.Node), ", at "))
		case !registered:
			absent = append(absent, m.Node)
		case !api.IsReady(n):
			notReady = append(notReady, m.Node)
		}
		delete(nodes, m.Node)
	}
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+": "+event.Abbreviate(names, ", "))
		}
	}
	add("not registered", absent)
	add("not Ready", notReady)
	add("registered, but not in the hive", nixeval.SortedNames(nodes))
	hollow, err := e.checkHollow(ctx)
	if err != nil {
		return engine.LastLine(err)
	}
	if parts = append(parts, hollow...); len(parts) > 0 {
		return errors.New(strings.Join(parts, "; "))
	}
	return nil
}

func (e checker) checkSystemPods(ctx context.Context) error {
	all, waiting, err := e.UnreadySystemPods(ctx)
	waiting = slices.DeleteFunc(waiting, func(p gjson.Result) bool { return slices.Contains(e.away, p.Get("spec.nodeName").String()) })
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
		names = append(names, api.NodeName(p)+api.WaitingReason(p))
	}
	return errors.New("not ready: " + event.Abbreviate(names, ", "))
}

func (e checker) explainSystemPods(ctx context.Context) string {
	_, waiting, _ := e.UnreadySystemPods(ctx) // ignore the error: if the API does not answer, there is nothing to explain
	var texts []string
	for _, p := range waiting[:min(maxExplained, len(waiting))] {
		name := api.NodeName(p)
		texts = append(texts, fmt.Sprintf("%s on %s%s", name, p.Get("spec.nodeName").String(), api.WaitingReason(p)))
		out, _ := e.Kubectl(ctx, "", "-n", "kube-system", "logs", name, "--all-containers", "--tail=3") // the error is ignored: a pod that has not started has no log
		texts = append(texts, indent("  ", out)...)
	}
	return strings.Join(texts, "\n")
}

func indent(prefix string, out []byte) []string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(string(out))) {
		lines = append(lines, prefix+strings.TrimSpace(line))
	}
	return lines
}

// explainNodes returns the phases (such as join) and the last log lines of members that are not Ready.
func (e checker) explainNodes(ctx context.Context) string {
	nodes, err := e.Nodes(ctx)
	return e.explainMembers(func(name string) bool { return err != nil || !api.IsReady(nodes[name]) })(ctx)
}

const (
	// maxExplained is the maximum number of nodes or pods whose logs an error quotes. Further nodes or pods usually have the same problem.
	maxExplained = 3
	logLines     = "15" // the number of lines from each log
)

// explainMembers returns a function that quotes the phases (such as join) and the last log lines of members. The function quotes
// at most maxExplained of the members for which which returns true.
func (k *kubeadm) explainMembers(which func(node string) bool) func(context.Context) string {
	return func(ctx context.Context) string {
		var texts []string
		shown := 0
		for _, m := range k.Cluster.Members {
			if shown == maxExplained || !which(m.Node) {
				continue
			}
			shown++
			texts = append(texts, k.explainMember(ctx, m.Node)...)
		}
		return strings.Join(texts, "\n")
	}
}

func (k *kubeadm) explainMember(ctx context.Context, node string) []string {
	phase, text := k.readPhase(ctx, node)
	texts := []string{fmt.Sprintf("%s: %s%s", node, cmp.Or(phase, "no phase"), text)}
	for _, unit := range []string{setupUnit, kubeletUnit} {
		out, err := k.Run(ctx, node, nil, "journalctl", "--no-pager", "-q", "-o", "cat", "-n", logLines, "-u", unit)
		if err != nil {
			return append(texts, "  "+engine.LastLine(err).Error()) // stop after the first log: the node cannot be reached, so its other log cannot be read either
		}
		texts = append(texts, indent("  "+strings.TrimSuffix(unit, ".service")+": ", out)...)
	}
	return texts
}

// checkHollow returns a text for each machine whose hollow nodes (the nodes that it simulates) are not those of the hive, or are
// not Ready. It asks the cluster only if the hive has hollow nodes.
func (e checker) checkHollow(ctx context.Context) ([]string, error) {
	type count struct{ expected, registered, ready int }
	counts := map[string]count{}
	for _, m := range e.Cluster.Members {
		var s settings
		if err := m.ReadSettings(&s); err != nil {
			return nil, err
		}
		if s.Hollow > 0 {
			counts[m.Node] = count{expected: s.Hollow}
		}
	}
	if len(counts) == 0 {
		return nil, nil
	}
	items, err := e.List(ctx, "get", "nodes", "-l", HollowLabel)
	for _, n := range items {
		c := counts[api.HollowMachine(n)]
		if c.registered++; api.IsReady(n) {
			c.ready++
		}
		counts[api.HollowMachine(n)] = c
	}
	var problems []string
	for machine, c := range counts {
		if c.registered != c.expected || c.ready < c.expected {
			problems = append(problems, fmt.Sprintf("%s: %d hollow nodes of %d are registered, %d are Ready", machine, c.registered, c.expected, c.ready))
		}
	}
	slices.Sort(problems)
	return problems, err
}
