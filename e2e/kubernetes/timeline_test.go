package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// timelineEntry is one step of apply, of a node's unit, or of the cluster.
type timelineEntry struct {
	at          time.Time
	where, what string
}

// logTimeline logs when each step of creating a cluster ended: the steps of apply, the steps that
// units and kubeadm logged on the nodes, and the changes that the API recorded. It also logs how
// long kubeadm init and join took alone.
func (g *guestCluster) logTimeline(began time.Time, events string, nodes ...string) {
	g.Helper()
	all := applyEntries(events)
	var alone time.Duration
	for _, node := range nodes {
		steps := journalEntries(node, g.runOn(node, `journalctl -o short-unix --no-pager -u nixbench-kubernetes`))
		alone = max(alone, stepDuration(steps, "init"))
		if node == nodes[len(nodes)-1] {
			alone += stepDuration(steps, "join")
		}
		all = append(all, steps...)
	}
	all = append(all, clusterEntries(g.runOn("cp-1", admin+"-n kube-system get lease,pod -o json"))...)
	all = append(all, clusterEntries(g.runOn("cp-1", admin+"get nodes -o json"))...)
	slices.SortStableFunc(all, func(a, b timelineEntry) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, m := range all {
		if after := m.at.Sub(began).Seconds(); after >= 0 {
			fmt.Fprintf(&b, "%6.1f s  %-32s %s\n", after, m.where, m.what)
		}
	}
	g.Logf("timeline, of which kubeadm init and join alone take %.1f s:\n%s", alone.Seconds(), b.String())
}

// applyEntries returns the ends of apply's phases, and the progress of its last check.
func applyEntries(events string) []timelineEntry {
	var all []timelineEntry
	for line := range strings.Lines(events) {
		var e struct {
			Time                     time.Time
			Event, Phase, Node, Text string
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.Phase == "survey" {
			continue
		}
		switch {
		case e.Event == "node-end", e.Event == "phase-end", e.Event == "progress" && e.Phase == "check":
			text, _, _ := strings.Cut(e.Text, "(")
			all = append(all, timelineEntry{e.Time, strings.TrimSpace("apply " + e.Node), strings.TrimSpace(e.Phase + ": " + text)})
		}
	}
	return all
}

// journalEntries returns the first line of each step that the unit and kubeadm logged.
func journalEntries(node, text string) []timelineEntry {
	var all []timelineEntry
	last, steps := "", map[string]bool{}
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(line, " ")
		_, said, found := strings.Cut(rest, "]: ")
		var seconds float64
		if _, err := fmt.Sscan(stamp, &seconds); err != nil || !found {
			continue
		}
		step, _, is := strings.Cut(said, "]")
		if strings.HasPrefix(said, "[") && is {
			if said = "kubeadm " + step + "]"; steps[said] {
				continue
			}
			steps[said] = true
		} else if word, _, _ := strings.Cut(strings.TrimSpace(said), ":"); !slices.Contains([]string{"waiting", "importing", "init", "join", "ready", "failed"}, word) {
			continue
		}
		if said = strings.TrimSpace(said); said != last {
			all = append(all, timelineEntry{time.UnixMicro(int64(seconds * 1e6)), node, said})
		}
		last = said
	}
	return all
}

// stepDuration returns the time from the beginning of a step of the unit to the next step.
func stepDuration(entries []timelineEntry, step string) time.Duration {
	for i, m := range entries {
		if m.what != step {
			continue
		}
		for _, next := range entries[i+1:] {
			if !strings.HasPrefix(next.what, "kubeadm ") {
				return next.at.Sub(m.at)
			}
		}
	}
	return 0
}

// clusterEntries returns when leases were acquired, and since when nodes and pods are Ready or
// scheduled; to the second.
func clusterEntries(list string) []timelineEntry {
	var l struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ AcquireTime time.Time }
			Status   struct {
				Conditions []struct {
					Type, Status       string
					LastTransitionTime time.Time
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(list), &l); err != nil {
		return nil
	}
	var all []timelineEntry
	for _, i := range l.Items {
		if !i.Spec.AcquireTime.IsZero() {
			all = append(all, timelineEntry{i.Spec.AcquireTime, i.Metadata.Name, "leads"})
		}
		for _, c := range i.Status.Conditions {
			if (c.Type == "Ready" || c.Type == "PodScheduled") && c.Status == "True" {
				all = append(all, timelineEntry{c.LastTransitionTime, i.Metadata.Name, c.Type})
			}
		}
	}
	return all
}
