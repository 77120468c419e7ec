package slurm

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// hollowForm matches the name of a hollow node, such as c-1-h2: the name of the machine that runs its slurmd, and a number on
// that machine.
var hollowForm = regexp.MustCompile(`^(.+)-h([1-9][0-9]*)$`)

// machineOf returns the machine of a hollow node (one of several nodes whose slurmd run on one machine), and the number of the
// node there. A hollow node has the name of its machine as NodeHostName; for other nodes, name and NodeHostName are equal.
func (n node) machineOf() (machine string, number int, ok bool) {
	m := hollowForm.FindStringSubmatch(n["NodeName"])
	if m == nil || m[1] != n["NodeHostName"] || n.isStatic() {
		return "", 0, false
	}
	number, err := strconv.Atoi(m[2])
	return m[1], number, err == nil
}

// joinHollow replaces the hollow nodes of each machine by one node, whose key is the name of the machine. expected returns how
// many hollow nodes a machine has in the hive. joinHollow keeps the nodes with greater numbers, which are not in the hive.
func joinHollow(nodes map[string]node, expected func(machine string) int) map[string]node {
	out := map[string]node{}
	wanted := map[string][]int{}
	for name, n := range nodes {
		machine, number, ok := n.machineOf()
		if ok && (number <= expected(machine) || expected(machine) == 0 && nodes[machine] == nil) {
			wanted[machine] = append(wanted[machine], number)
		} else {
			out[name] = n
		}
	}
	for machine, numbers := range wanted {
		joined := join(nodes, machine, numbers)
		if missing := expected(machine) - len(numbers); missing > 0 {
			joined["Missing"] = fmt.Sprintf("%d of its %d hollow nodes have not registered", missing, expected(machine))
		}
		out[machine] = joined
	}
	return out
}

// join returns one node for all hollow nodes of a machine. It is ready if all of them are ready, drained if all are drained, and
// busy if one of them is busy. Its NodeName is a list that scontrol accepts.
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
		joined["Drained"] = fmt.Sprintf("%d of its %d hollow nodes are drained: %s", len(drained), len(all), event.Abbreviate(drained, "; "))
		joined["State"] = strings.Join(slices.DeleteFunc(joined.states(), func(s string) bool { return s == "DRAIN" }), "+")
	}
	joined["AnyReady"], joined["CPUAlloc"] = "", "0"
	if slices.ContainsFunc(all, node.isReady) {
		joined["AnyReady"] = "1"
	}
	if slices.ContainsFunc(all, node.IsBusy) {
		joined["CPUAlloc"] = "1"
	}
	first := slices.MinFunc(all, func(a, b node) int { return a.slurmdStart().Compare(b.slurmdStart()) }) // an unknown time is 1970
	joined["SlurmdStartTime"] = first["SlurmdStartTime"]
	return joined
}

// rank returns a number for the state of a hollow node. A machine has the state of the hollow node with the highest rank.
func (n node) rank() int {
	switch {
	case !n.isReady():
		return 2
	case !n.IsDrained():
		return 1
	}
	return 0
}

func hollowNode(machine string, number int) string { return machine + "-h" + strconv.Itoa(number) }

// hollowOf returns how many hollow nodes a machine has in the hive. It returns 0 for a machine that is one node, and for a
// machine that is not in the hive.
func (c *client) hollowOf(machine string) int {
	s, _ := c.settingsOf(machine) // other calls return the error
	return s.Hollow
}

// jobNodes returns the compute nodes of the hive by their names in SLURM. For a machine with hollow nodes, it returns only the
// first hollow node.
func (c *client) jobNodes() []string {
	nodes := slices.Clone(c.NodesOf(Compute))
	for i, name := range nodes {
		if c.hollowOf(name) > 0 {
			nodes[i] = hollowNode(name, 1)
		}
	}
	return nodes
}
