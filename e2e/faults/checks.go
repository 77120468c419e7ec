package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// converges is the time limit of the first apply after a fault, which must bring the cluster into the desired state.
const converges = 90 * time.Second

var crashed = regexp.MustCompile(`(?m)^panic: |^fatal error: |^goroutine \d+ \[|runtime error: `)

// checkOperation returns the problems of the nixbench run into which the fault was injected. The exit code must
// be allowed for the fault, and the error message must name what failed. after is the time from the fault to the end of the run.
func checkOperation(f fault, victim string, o outcome, after time.Duration) []string {
	wrong := checkRun("operation", o)
	if o.hung {
		return wrong
	}
	if f.ends > 0 && after > f.ends {
		wrong = append(wrong, fmt.Sprintf("operation: it ended %.1f s after %s, more than %v", after.Seconds(), f.name, f.ends))
	}
	if !slices.Contains(f.exits, o.code) {
		wrong = append(wrong, fmt.Sprintf("operation: exit code %d after %s: %s", o.code, f.name, o.message()))
	}
	named := func(word string) bool {
		return strings.Contains(o.message(), strings.ReplaceAll(word, "VICTIM", victim))
	}
	if f.names != nil && o.code != 0 && !slices.ContainsFunc(f.names, named) {
		wrong = append(wrong, fmt.Sprintf("operation: its message names none of %q (VICTIM: %s): %s", f.names, victim, o.message()))
	}
	return wrong
}

// checkRun returns a problem if nixbench has crashed or was killed at the time limit.
func checkRun(what string, o outcome) []string {
	if o.hung {
		return []string{fmt.Sprintf("%s: it still ran after %v", what, longest)}
	}
	if at := crashed.FindString(o.stderr + o.stdout); at != "" {
		return []string{what + ": it crashed: " + at}
	}
	return nil
}

// checkNextApply returns the problems of the first apply after the fault.
func checkNextApply(o outcome) []string {
	wrong := checkRun("next apply", o)
	switch {
	case o.hung:
	case o.code != 0:
		wrong = append(wrong, fmt.Sprintf("next apply: exit code %d: %s", o.code, o.message()))
	case o.took > converges:
		wrong = append(wrong, fmt.Sprintf("next apply: it took %.0f s, more than %v", o.took.Seconds(), converges))
	}
	return wrong
}

// checkNoOp returns the changes that an apply made, although it should have changed nothing.
func checkNoOp(wanted cluster, o outcome) []string {
	if o.code != 0 {
		return []string{fmt.Sprintf("apply after it: exit code %d: %s", o.code, o.message())}
	}
	var wrong, got, want []string
	for _, e := range o.events {
		switch {
		case e.Event == "node-start" && slices.Contains([]string{"boot", "activate", "confirm", "remove"}, e.Phase):
			wrong = append(wrong, fmt.Sprintf("apply after it: it begins %s on %s (%s)", e.Phase, e.Node, e.Text))
		case e.Event == "node-end" && e.Phase == "copy" && e.Done > 0:
			wrong = append(wrong, fmt.Sprintf("apply after it: it copies to %s (%s)", e.Node, e.Text))
		case e.Event == "node-end" && e.Phase == "keys" && strings.Contains(e.Text, "uploaded"):
			wrong = append(wrong, fmt.Sprintf("apply after it: %s: %s", e.Node, e.Text))
		case e.Event == "result":
			var nodes []struct{ Node, Outcome string }
			_ = json.Unmarshal(e.Result, &nodes) // another result is reported below
			for _, n := range nodes {
				got = append(got, n.Node+" "+n.Outcome)
			}
		}
	}
	for _, node := range wanted.nodes() {
		want = append(want, node+" unchanged")
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		wrong = append(wrong, fmt.Sprintf("apply after it: its result is %q, not %q", got, want))
	}
	return wrong
}

// checkNodes compares out, the output of the script of checkNodeAnswers on all nodes, with the desired state. It returns the differences.
func checkNodes(wanted cluster, token, out string) []string {
	answers := map[string][]string{}
	for line := range strings.Lines(out) {
		if node, text, ok := strings.Cut(strings.TrimSpace(line), " | "); ok {
			answers[node] = append(answers[node], strings.TrimSpace(text))
		}
	}
	var wrong []string
	for _, node := range wanted.nodes() {
		want := []string{node, wanted.version, digest(token + "-" + wanted.version)}
		if !slices.Equal(answers[node], want) {
			wrong = append(wrong, fmt.Sprintf("nodes: %s answers %q, not %q", node, answers[node], want))
		}
	}
	if len(answers) > wanted.count {
		wrong = append(wrong, fmt.Sprintf("nodes: %d answer, not %d", len(answers), wanted.count))
	}
	return wrong
}

// checkIntents returns a problem for each intent (an operation that nixbench has begun) that is still in state.json.
func checkIntents(m recordedState) []string {
	var wrong []string
	for _, i := range m.Intents {
		wrong = append(wrong, "state.json: an intent is left: "+string(i))
	}
	return wrong
}

// checkStateEmpty returns a problem for each entry that state.json still has after destroy.
func checkStateEmpty(m recordedState) []string {
	wrong := checkIntents(m)
	for node := range m.Machines {
		wrong = append(wrong, "after destroy: state.json has the machine "+node)
	}
	for node := range m.Nodes {
		wrong = append(wrong, "after destroy: state.json has the node "+node)
	}
	if len(m.Cluster) > 0 {
		wrong = append(wrong, "after destroy: state.json has the cluster "+string(m.Cluster))
	}
	slices.Sort(wrong)
	return wrong
}
