package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// moment is something that happened somewhere.
type moment struct {
	at          time.Time
	where, what string
}

// waterfall logs where the time of making a cluster went, beside what kubeadm alone takes: what
// apply did, what units and kubeadm said on the nodes, and what the cluster remembers. Workers
// do not wait for what the control plane prints.
func (g *ground) waterfall(began time.Time, events string, nodes ...string) {
	g.Helper()
	all := ours(events)
	var alone time.Duration
	for _, node := range nodes {
		said := journal(node, g.on(node, `journalctl -o short-unix --no-pager -u nixbench-kubernetes`))
		alone = max(alone, took(said, "init"))
		if node == nodes[len(nodes)-1] {
			alone += took(said, "join")
		}
		all = append(all, said...)
	}
	all = append(all, remembered(g.on("cp-1", admin+"-n kube-system get lease,pod -o json"))...)
	all = append(all, remembered(g.on("cp-1", admin+"get nodes -o json"))...)
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, m := range all {
		if after := m.at.Sub(began).Seconds(); after >= 0 {
			fmt.Fprintf(&b, "%6.1f s  %-32s %s\n", after, m.where, m.what)
		}
	}
	g.Logf("kubeadm init and join alone take %.1f s of it:\n%s", alone.Seconds(), b.String())
}

// ours is what apply sent.
func ours(events string) []moment {
	var all []moment
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
			all = append(all, moment{e.Time, strings.TrimSpace("apply " + e.Node), strings.TrimSpace(e.Phase + ": " + text)})
		}
	}
	return all
}

// journal is what the unit and kubeadm said: the first line of each step.
func journal(node, text string) []moment {
	var all []moment
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
			all = append(all, moment{time.UnixMicro(int64(seconds * 1e6)), node, said})
		}
		last = said
	}
	return all
}

// took is how long a step of the unit took, until the next one.
func took(said []moment, step string) time.Duration {
	for i, m := range said {
		if m.what != step {
			continue
		}
		for _, next := range said[i+1:] {
			if !strings.HasPrefix(next.what, "kubeadm ") {
				return next.at.Sub(m.at)
			}
		}
	}
	return 0
}

// remembered is since when objects are what they are, by the second.
func remembered(list string) []moment {
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
	var all []moment
	for _, i := range l.Items {
		if !i.Spec.AcquireTime.IsZero() {
			all = append(all, moment{i.Spec.AcquireTime, i.Metadata.Name, "leads"})
		}
		for _, c := range i.Status.Conditions {
			if (c.Type == "Ready" || c.Type == "PodScheduled") && c.Status == "True" {
				all = append(all, moment{c.LastTransitionTime, i.Metadata.Name, c.Type})
			}
		}
	}
	return all
}
