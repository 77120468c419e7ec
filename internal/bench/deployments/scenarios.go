package deployments

import (
	"fmt"
	"slices"
	"strings"
)

// A goal is what the measured program does with the hive.
type goal string

const (
	goalSwitch goal = "switch"
	goalKeys   goal = "upload-keys"
	goalPush   goal = "push"
	goalBuild  goal = "build"
)

// A scenario is one measured operation. Before each run the nodes have a hive with the keys of the scenario, applied by
// the same program; that is not measured.
type scenario struct {
	name, title string
	keys        int                  // number of keys that each node has before
	change      func(h *hive, n int) // changes the applied hive into the measured one, by a new number; nil: no change
	goal        goal
	one         bool // only on the first node
	budgets     []budget
}

var scenarios = []scenario{
	{name: "first", title: "first apply of a fresh closure", goal: goalSwitch,
		change:  func(h *hive, n int) { h.fresh, h.line = n, n },
		budgets: []budget{{programs, 60, false}}},
	{name: "noop", title: "apply without changes", goal: goalSwitch,
		budgets: []budget{{nodeCPU, 0.15, true}, {logins, 1, false}}},
	{name: "line", title: "one line changed on all nodes", goal: goalSwitch,
		change:  func(h *hive, n int) { h.line = n },
		budgets: []budget{{wall, 3, false}, {nodeCPU, 0.6, true}, {programs, 60, false}}},
	{name: "keys-new", title: "apply with 17 new keys per node", goal: goalSwitch,
		change:  func(h *hive, n int) { h.keys, h.keySet, h.keyVersion = 17, n, n },
		budgets: []budget{{wall, 4, false}}},
	{name: "keys-changed", title: "upload-keys with 20 changed keys per node", keys: 20, goal: goalKeys,
		change:  func(h *hive, n int) { h.keyVersion = n },
		budgets: []budget{{nodeCPU, 0.2, true}}},
	{name: "keys-same", title: "upload-keys with 20 unchanged keys per node", keys: 20, goal: goalKeys,
		budgets: []budget{{nodeCPU, 0.1, true}}},
	{name: "copy-one", title: "a large path to one node", goal: goalPush, one: true,
		change: func(h *hive, _ int) { h.large = true }},
	{name: "copy-all", title: "a large path to all nodes", goal: goalPush,
		change:  func(h *hive, _ int) { h.large = true },
		budgets: []budget{{timesOne, 2, false}}},
}

// selectScenarios returns the scenarios with these names, separated by commas, in the order of the table. An empty text
// selects all.
func selectScenarios(names string) ([]scenario, error) {
	if names == "" {
		return scenarios, nil
	}
	wanted := strings.Split(names, ",")
	var out []scenario
	var known []string
	for _, s := range scenarios {
		known = append(known, s.name)
		if slices.Contains(wanted, s.name) {
			out = append(out, s)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no scenario %q; the scenarios are %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}
