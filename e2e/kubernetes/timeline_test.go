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

// readTimeline returns when each step of creating a cluster ended: the steps of apply, the steps that the units on the
// nodes logged, and the changes that the API recorded.
func (g *guestCluster) readTimeline(events string, nodes ...string) []timelineEntry {
	g.Helper()
	all := applyEntries(events)
	for _, node := range nodes {
		all = append(all, journalEntries(node, g.runOn(node, `journalctl -o short-unix --no-pager -u nixbench-kubernetes -u containerd -u kubelet`))...)
	}
	all = append(all, clusterEntries(g.runOn("cp-1", admin+"-n kube-system get lease,pod -o json"))...)
	all = append(all, clusterEntries(g.runOn("cp-1", admin+"get nodes -o json"))...)
	slices.SortStableFunc(all, func(a, b timelineEntry) int { return a.at.Compare(b.at) })
	return all
}

// formatTimeline returns the entries as text, with the time of each after the beginning.
func formatTimeline(began time.Time, all []timelineEntry) string {
	var b strings.Builder
	for _, m := range all {
		if after := m.at.Sub(began).Seconds(); after >= 0 {
			fmt.Fprintf(&b, "%6.1f s  %-32s %s\n", after, m.where, m.what)
		}
	}
	return b.String()
}

// waterfallSteps are the steps that the end of a cluster's creation waits for, one after the other. Each ends with an
// entry of the timeline: the nth one of this place with this beginning, or the last one if nth is 0.
var waterfallSteps = []struct {
	step, where, what string
	nth               int
}{
	{"evaluation, image", "apply", "image:", 1},
	{"disk and boot of cp-1", "apply cp-1", "boot:", 1},
	{"copy, keys", "apply cp-1", "keys:", 1},
	{"switch; containerd starts", "apply cp-1", "activate:", 1},
	{"permit, preflight checks", "cp-1", "kubeadm [certs]", 1},
	{"kubeadm: certificates, manifests", "cp-1", "kubeadm [wait-control-plane]", 1},
	{"kubelet starts", "cp-1", "kubelet runs", 1},
	{"containers of the control plane start", "cp-1", "container started", 4},
	{"first answer of the API server", "cp-1", "kubeadm [upload-config]", 1},
	{"cluster information published", "w-", "join", 0},
	{"kubeadm join; kubelets register", "w-", "kubelet registered", 0},
	{"CNI; all nodes Ready", "w-", "kubelet Ready", 0},
	{"kube-proxy, CoreDNS", "apply", "check: system pods run", 0},
}

// formatWaterfall returns how long each of waterfallSteps took; together they take the whole time.
func formatWaterfall(began, ended time.Time, all []timelineEntry) string {
	var b strings.Builder
	at := began
	write := func(step string, end time.Time) {
		if end.Before(at) {
			end = at
		}
		from, took := at.Sub(began).Seconds(), end.Sub(at).Seconds()
		fmt.Fprintf(&b, "%-40s %5.1f s  %s%s\n", step, took, strings.Repeat(" ", int(2*from)), strings.Repeat("█", max(1, int(2*took+0.5))))
		at = end
	}
	for _, s := range waterfallSteps {
		n, end := 0, at
		for _, m := range all {
			place := m.where == s.where || strings.HasSuffix(s.where, "-") && strings.HasPrefix(m.where, s.where)
			if place && strings.HasPrefix(m.what, s.what) && !strings.HasPrefix(m.what, s.what+":") && (s.nth == 0 || n < s.nth) {
				n, end = n+1, m.at
			}
		}
		write(s.step, end)
	}
	write("last checks", ended)
	fmt.Fprintf(&b, "%-40s %5.1f s\n", "all", ended.Sub(began).Seconds())
	return b.String()
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

// journalTexts are texts of log lines that are entries of the timeline.
var journalTexts = []struct{ text, what string }{
	{`"Started kubelet"`, "kubelet runs"},
	{`"Successfully registered node"`, "kubelet registered"},
	{"as it just became ready", "kubelet Ready"},
	{`\" returns successfully"`, "container started"},
}

// journalEntries returns the first line of each step that the unit and kubeadm logged, and the lines with journalTexts.
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
		for _, t := range journalTexts {
			if strings.Contains(said, t.text) && (t.what != "container started" || strings.Contains(said, `msg="StartContainer`)) {
				all = append(all, timelineEntry{time.UnixMicro(int64(seconds * 1e6)), node, t.what})
			}
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
