package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// budgetBlock describes a PodDisruptionBudget that blocks the eviction of a pod. name is empty if no budget
// blocks the eviction.
type budgetBlock struct {
	name      string // the budget, as namespace/name
	text      string // why the budget blocks the eviction
	permanent bool   // whether the budget blocks the eviction until somebody changes the budget or the number of pods
}

// findBlock returns the budget that blocks the eviction of a pod, temporarily or permanently.
func findBlock(budgets []gjson.Result, p pod) budgetBlock {
	if phase := p.Get("status.phase").String(); phase != "Running" { // the API server evicts pods that do not run regardless of budgets
		return budgetBlock{}
	}
	var of []gjson.Result
	for _, b := range budgets {
		if b.Get("metadata.namespace").String() == p.namespace() && matchesSelector(b.Get("spec.selector"), p.Get("metadata.labels")) {
			of = append(of, b)
		}
	}
	name := func(b gjson.Result) string { return p.namespace() + "/" + b.Get("metadata.name").String() }
	switch len(of) {
	case 0:
		return budgetBlock{}
	case 1:
	default:
		return budgetBlock{name: name(of[0]), text: "is one of several budgets of this pod, and the API evicts no such pod; another one is " + name(of[1]), permanent: true}
	}
	b := of[0]
	unready := !IsReady(p.Result)
	if b.Get("status.disruptionsAllowed").Int() > 0 || unready && b.Get("spec.unhealthyPodEvictionPolicy").String() == "AlwaysAllow" {
		return budgetBlock{}
	}
	healthy, desired, expected := b.Get("status.currentHealthy").Int(), b.Get("status.desiredHealthy").Int(), b.Get("status.expectedPods").Int()
	if unready && healthy >= desired && desired > 0 {
		return budgetBlock{}
	}
	// Until the controller has observed the last change of the budget, the numbers in the status may be
	// outdated, and the block does not count as permanent.
	fresh := b.Get("status.observedGeneration").Int() >= b.Get("metadata.generation").Int()
	return budgetBlock{
		name: name(b), text: fmt.Sprintf("allows 0 disruptions (%d of %d pods must be healthy, and %d are)", desired, expected, healthy),
		permanent: fresh && expected > 0 && desired >= expected,
	}
}

// matchesSelector reports whether a label selector matches the labels of a pod. An empty selector matches all
// pods; a missing selector matches no pod.
func matchesSelector(selector, labels gjson.Result) bool {
	if !selector.Exists() {
		return false
	}
	get := func(key string) gjson.Result { return labels.Get(gjson.Escape(key)) }
	matches := true
	selector.Get("matchLabels").ForEach(func(key, value gjson.Result) bool {
		is := get(key.String())
		matches = is.Exists() && is.String() == value.String()
		return matches
	})
	for _, e := range selector.Get("matchExpressions").Array() {
		is := get(e.Get("key").String())
		in := is.Exists() && slices.ContainsFunc(e.Get("values").Array(), func(v gjson.Result) bool { return v.String() == is.String() })
		switch strings.ToLower(e.Get("operator").String()) {
		case "in":
			matches = matches && in
		case "notin":
			matches = matches && !in
		case "exists":
			matches = matches && is.Exists()
		case "doesnotexist":
			matches = matches && !is.Exists()
		}
	}
	return matches
}
