package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Conditions implements [engine.Checker].
func (e *Engine) Conditions(o engine.CheckOptions) []check.Condition {
	conditions := []check.Condition{
		{Name: "the API answers", Probe: e.checkAPI, Explain: e.explainMembers(func(m string) bool { return slices.Contains(e.NodesOf(ControlPlane), m) })},
		{Name: formatCount(len(e.Cluster.Members), "node") + " Ready", Probe: e.checkNodesReady, Explain: e.explainNodes},
		{Name: "system pods run", Probe: e.checkSystemPods, Explain: e.explainSystemPods},
	}
	conditions = append(conditions, e.objectConditions()...)
	if o.Deep {
		conditions = append(conditions, check.Condition{
			Name: "pods reach each other and a Service", Probe: e.checkPodNetwork, Every: 2 * time.Second, Limit: deepTimeout,
		})
	}
	return conditions
}

// formatCount returns a number with a noun, such as "1 pod" or "2 pods".
func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checkAPI returns nil if the API server of every control plane answers. It checks each API server, because a
// control plane that has just joined is Ready before its own API server answers. While the cluster is being
// created, the error contains the phases of the control planes.
func (e *Engine) checkAPI(ctx context.Context) error {
	all := e.NodesOf(ControlPlane)
	if len(all) == 0 {
		return errNoControlPlane
	}
	missing := make([]string, len(all))
	var asked sync.WaitGroup
	for i, node := range all {
		asked.Go(func() { missing[i] = e.explainAPIFailure(ctx, node) })
	}
	asked.Wait()
	if missing = slices.DeleteFunc(missing, func(m string) bool { return m == "" }); len(missing) > 0 {
		return errors.New(engine.Abbreviate(missing, ", "))
	}
	return nil
}

// explainAPIFailure returns why the API server of a control plane does not answer, or an empty string if the
// API server answers.
func (e *Engine) explainAPIFailure(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := e.runKubectlOn(ctx, node, "", "get", "--raw", "/readyz")
	if err == nil {
		return ""
	}
	if phase, text := e.readPhase(ctx, node); phase != "" && phase != "ready" {
		return fmt.Sprintf("%s is at %s%s", node, phase, text)
	}
	return node + ": " + lastLineOf(failure.TextOn(node, err))
}

// progressFile is the file on a node to which nixbench-kubernetes.service writes the phase of the node.
const progressFile = "/var/lib/nixbench/kubernetes.json"

// readPhase returns the phase of a node, such as "join", and the first line of the message of that phase, in
// parentheses. It returns two empty strings if the phase cannot be read.
func (e *Engine) readPhase(ctx context.Context, node string) (phase, text string) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "cat", progressFile)
	if err != nil {
		return "", ""
	}
	progress, _ := parseJSON(out)
	if message := progress.Get("message").String(); message != "" {
		text = " (" + firstLine(message) + ")"
	}
	return progress.Get("phase").String(), text
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// keepLastLine returns a new error with the last line of err, which usually contains the cause.
func keepLastLine(err error) error {
	return errors.New(engine.LastLine(err))
}

func lastLineOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// checkNodesReady returns nil if the registered nodes are exactly the members in the hive, and all members are
// Ready.
func (e *Engine) checkNodesReady(ctx context.Context) error {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return keepLastLine(err)
	}
	var absent, notReady, extra []string
	for _, m := range e.Cluster.Members {
		n, registered := nodes[m.Node]
		switch {
		case !registered && len(absent) < maxExplained:
			text := m.Node
			if how := e.describeJoin(ctx, m.Node); how != "" {
				text += ", at " + how
			}
			absent = append(absent, text)
		case !registered:
			absent = append(absent, m.Node)
		case !isReady(n):
			notReady = append(notReady, m.Node)
		}
		delete(nodes, m.Node)
	}
	for name := range nodes {
		extra = append(extra, name)
	}
	slices.Sort(extra)
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"not registered", absent}, {"not Ready", notReady}, {"registered, but not in the hive", extra}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+": "+engine.Abbreviate(p.names, ", "))
		}
	}
	hollow, err := e.checkHollow(ctx)
	if err != nil {
		return keepLastLine(err)
	}
	parts = append(parts, hollow...)
	if len(parts) == 0 {
		return nil
	}
	return errors.New(strings.Join(parts, "; "))
}

// checkSystemPods returns nil if kube-system contains pods and all of them are ready.
func (e *Engine) checkSystemPods(ctx context.Context) error {
	all, waiting, err := e.listUnreadySystemPods(ctx)
	switch {
	case err != nil:
		return keepLastLine(err)
	case all == 0:
		return errors.New("there are no system pods")
	case len(waiting) > 0:
		var names []string
		for _, p := range waiting {
			names = append(names, p.Get("metadata.name").String()+waitingReason(p))
		}
		return errors.New("not ready: " + engine.Abbreviate(names, ", "))
	}
	return nil
}

// listUnreadySystemPods returns the number of pods in kube-system and the pods that are not ready. Pods of
// finished jobs, and pods that are being deleted, count as ready.
func (e *Engine) listUnreadySystemPods(ctx context.Context) (all int, waiting []gjson.Result, _ error) {
	pods, err := e.listObjects(ctx, "-n", "kube-system", "get", "pods")
	if err != nil {
		return 0, nil, err
	}
	for _, p := range pods {
		if p.Get("status.phase").String() == "Succeeded" || p.Get("metadata.deletionTimestamp").Exists() {
			continue
		}
		if !isReady(p) {
			waiting = append(waiting, p)
		}
	}
	return len(pods), waiting, nil
}

// explainSystemPods returns the last lines of the logs of pods in kube-system that are not ready, for at most
// maxExplained pods.
func (e *Engine) explainSystemPods(ctx context.Context) string {
	_, waiting, err := e.listUnreadySystemPods(ctx)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range waiting[:min(maxExplained, len(waiting))] {
		name := p.Get("metadata.name").String()
		fmt.Fprintf(&b, "%s on %s%s\n", name, p.Get("spec.nodeName").String(), waitingReason(p))
		out, _ := e.runKubectl(ctx, "", "-n", "kube-system", "logs", name, "--all-containers", "--tail=3") // the error is ignored: a pod that has not started has no log
		for line := range strings.Lines(strings.TrimSpace(string(out))) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(line))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// waitingReason returns the reason why a container of the pod waits, in parentheses, or an empty string if no
// container waits or the container is only being created.
func waitingReason(pod gjson.Result) string {
	for _, c := range pod.Get("status.containerStatuses").Array() {
		if r := c.Get("state.waiting.reason").String(); r != "" && r != "ContainerCreating" {
			return " (" + r + ")"
		}
	}
	return ""
}

// explainNodes returns the phases and the last log lines of members that are not Ready.
func (e *Engine) explainNodes(ctx context.Context) string {
	nodes, err := e.listNodes(ctx)
	return e.explainMembers(func(name string) bool {
		n, registered := nodes[name]
		return err != nil || !registered || !isReady(n)
	})(ctx)
}

const (
	// maxExplained is the maximum number of nodes or pods whose logs an explanation contains. Further ones
	// usually have the same problem.
	maxExplained = 3
	logLines     = "15" // the number of lines from each log
)

// explainMembers returns a function that returns the phases and the last log lines of the members for which
// which returns true, for at most maxExplained members.
func (e *Engine) explainMembers(which func(node string) bool) func(context.Context) string {
	return func(ctx context.Context) string {
		var b strings.Builder
		shown := 0
		for _, m := range e.Cluster.Members {
			if shown == maxExplained || !which(m.Node) {
				continue
			}
			shown++
			phase, text := e.readPhase(ctx, m.Node)
			if phase == "" {
				phase = "no phase"
			}
			fmt.Fprintf(&b, "%s: %s%s\n", m.Node, phase, text)
			if phase == "join" {
				if text := e.describeCertificateRequest(ctx, m.Node); text != "" {
					fmt.Fprintf(&b, "  %s\n", text)
				}
			}
			for _, unit := range []string{"nixbench-kubernetes.service", "kubelet.service"} {
				out, err := e.Run(ctx, m.Node, nil, "journalctl", "--no-pager", "-q", "-o", "cat", "-n", logLines, "-u", unit)
				if err != nil {
					fmt.Fprintf(&b, "  %v\n", keepLastLine(err))
					break // the node cannot be reached, so its other log cannot be read either
				}
				for line := range strings.Lines(strings.TrimSpace(string(out))) {
					fmt.Fprintf(&b, "  %s: %s\n", strings.TrimSuffix(unit, ".service"), strings.TrimSpace(line))
				}
			}
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
}
