package slurm

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is a node as `scontrol show nodes` reports it: the values by their names.
type node map[string]string

// listNodes returns the registered compute nodes by name.
func (e *Engine) listNodes(ctx context.Context) (map[string]node, error) {
	// Times are in seconds since 1970, and do not depend on the time zone of the controller.
	out, err := e.runOnController(ctx, "env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "nodes")
	if err != nil {
		return nil, err
	}
	return parseNodes(out), nil
}

// nameOfValue matches the name of a value. Values may contain spaces.
var nameOfValue = regexp.MustCompile(`(?:^| )([A-Za-z_]+)=`)

// parseNodes parses the output of `scontrol --oneliner show nodes`. If a line has a name twice, the first value
// counts, because a reason, which users write, may contain any text.
func parseNodes(out string) map[string]node {
	all := map[string]node{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		n := node{}
		matches := nameOfValue.FindAllStringSubmatchIndex(line, -1)
		for i, m := range matches {
			end := len(line)
			if i+1 < len(matches) {
				end = matches[i+1][0]
			}
			if name := line[m[2]:m[3]]; n[name] == "" {
				n[name] = strings.TrimSpace(line[m[1]:end])
			}
		}
		if name := n["NodeName"]; name != "" {
			all[name] = n
		}
	}
	return all
}

// states returns the base state, such as IDLE or MIXED, and the flags of a node, such as DRAIN.
func (n node) states() []string { return strings.Split(n["State"], "+") }

// has reports whether a node has the state or flag.
func (n node) has(state string) bool { return slices.Contains(n.states(), state) }

// isReady reports whether slurmd works, so that the node can run jobs unless it is drained.
func (n node) isReady() bool {
	for _, bad := range []string{"NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN", "POWERING_DOWN", "FAIL"} {
		if n.has(bad) {
			return false
		}
	}
	return slices.Contains([]string{"IDLE", "MIXED", "ALLOCATED"}, n.states()[0])
}

// isDrained reports whether the node gets no new jobs.
func (n node) isDrained() bool { return n.has("DRAIN") }

// isBusy reports whether jobs run on the node or are ending.
func (n node) isBusy() bool {
	return n.has("ALLOCATED") || n.has("MIXED") || n.has("COMPLETING") || n["CPUAlloc"] != "0" && n["CPUAlloc"] != ""
}

// drainReason begins the reason of a drain by nixbench. After a killed run, the next run uncordons only nodes
// with such a reason. Nodes that an administrator or SLURM has drained stay drained.
const drainReason = "nixbench: "

// isDrainedByUs reports whether nixbench has drained the node. SLURM keeps the reason when the drain ends, so the
// reason alone does not prove this.
func (n node) isDrainedByUs() bool {
	return n.isDrained() && strings.HasPrefix(n["Reason"], drainReason)
}

// slurmdStart returns the time, by the clock of the node, at which the slurmd that has registered was started.
func (n node) slurmdStart() (time.Time, bool) {
	seconds, err := strconv.ParseInt(n["SlurmdStartTime"], 10, 64)
	return time.Unix(seconds, 0), err == nil
}

// describe returns the state of a node and the reason for it.
func (n node) describe() string {
	if reason := n["Reason"]; reason != "" {
		return n["State"] + " (" + reason + ")"
	}
	return n["State"]
}
