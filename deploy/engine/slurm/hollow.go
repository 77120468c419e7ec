package slurm

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
)

// hollowForm matches the name of a hollow node: the name of its machine, and its number on the machine.
var hollowForm = regexp.MustCompile(`^(.+)-h([1-9][0-9]*)$`)

// machineOf returns the machine of a hollow node, and the number of the node there. slurmd reports the name of its machine as
// NodeHostName; the name and the NodeHostName of other nodes are equal.
func (n node) machineOf() (machine string, number int, ok bool) {
	m := hollowForm.FindStringSubmatch(n["NodeName"])
	if m == nil || m[1] != n["NodeHostName"] || n.isStatic() {
		return "", 0, false
	}
	number, err := strconv.Atoi(m[2])
	return m[1], number, err == nil
}

// joinHollow replaces the hollow nodes of each machine by one node, which has the name of the machine as its key. expected returns how many hollow
// nodes a machine has in the hive. Nodes of a machine with greater numbers are joined under a key of their own, which is no node of the hive.
func joinHollow(nodes map[string]node, expected func(machine string) int) map[string]node {
	out := map[string]node{}
	wanted, surplus := map[string][]int{}, map[string][]int{}
	for name, n := range nodes {
		machine, number, ok := n.machineOf()
		switch {
		case !ok:
			out[name] = n
		case number <= expected(machine) || expected(machine) == 0 && nodes[machine] == nil:
			wanted[machine] = append(wanted[machine], number)
		default:
			surplus[machine] = append(surplus[machine], number)
		}
	}
	for machine, numbers := range wanted {
		joined := join(nodes, machine, numbers)
		if missing := expected(machine) - len(numbers); missing > 0 {
			joined["Missing"] = fmt.Sprintf("%d of its %d hollow nodes have not registered", missing, expected(machine))
		}
		out[machine] = joined
	}
	for machine, numbers := range surplus {
		joined := join(nodes, machine, numbers)
		out[joined["NodeName"]] = joined
	}
	return out
}

// join returns one node for hollow nodes of a machine. It is ready, or drained, if all of them are, and busy if one of them is. Its NodeName is
// a list that scontrol accepts.
func join(nodes map[string]node, machine string, numbers []int) node {
	slices.Sort(numbers)
	var all []node
	var texts, drained []string
	for _, number := range numbers {
		n := nodes[hollowNode(machine, number)]
		all, texts = append(all, n), append(texts, strconv.Itoa(number))
		if n.IsDrained() {
			drained = append(drained, n["NodeName"]+" is "+n.describe())
		}
	}
	joined := maps.Clone(slices.MaxFunc(all, func(a, b node) int { return cmp.Compare(a.rank(), b.rank()) }))
	joined["NodeName"] = machine + "-h[" + strings.Join(texts, ",") + "]"
	if len(drained) > 0 && len(drained) < len(all) {
		joined["Drained"] = fmt.Sprintf("%d of its %d hollow nodes are drained: %s", len(drained), len(all), engine.Abbreviate(drained, "; "))
		joined["State"] = strings.Join(slices.DeleteFunc(joined.states(), func(s string) bool { return s == "DRAIN" }), "+")
	}
	joined["AnyReady"], joined["CPUAlloc"] = "", "0"
	if slices.ContainsFunc(all, node.isReady) {
		joined["AnyReady"] = "1"
	}
	if slices.ContainsFunc(all, node.IsBusy) {
		joined["CPUAlloc"] = "1"
	}
	first := slices.MinFunc(all, func(a, b node) int { return a.slurmdStart().Compare(b.slurmdStart()) }) // one that is unknown is the first
	joined["SlurmdStartTime"] = first["SlurmdStartTime"]
	return joined
}

// runsJobs reports whether the node, or one of the hollow nodes of a machine, can run jobs unless it is drained.
func (n node) runsJobs() bool { return n.isReady() || n["AnyReady"] != "" }

// rank returns a number for the state of a hollow node. The state of a machine is the state of its hollow node with the
// highest rank.
func (n node) rank() int {
	switch {
	case !n.isReady():
		return 2
	case !n.IsDrained():
		return 1
	}
	return 0
}

// hollowNode returns the name of a hollow node.
func hollowNode(machine string, number int) string { return machine + "-h" + strconv.Itoa(number) }

// hollowOf returns how many hollow nodes a machine of the hive has. It returns 0 for other machines, and for machines that are one node.
func (c *client) hollowOf(machine string) int {
	s, _ := c.settingsOf(machine) // other calls return the error
	return s.Hollow
}

// jobNodes returns the names in SLURM of the compute nodes of the hive, and of a machine with hollow nodes the name of the first one.
func (c *client) jobNodes() []string {
	nodes := slices.Clone(c.NodesOf(Compute))
	for i, name := range nodes {
		if c.hollowOf(name) > 0 {
			nodes[i] = hollowNode(name, 1)
		}
	}
	return nodes
}
