package slurm

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// node is a node as `scontrol show nodes` reports it: the values by their names.
type node map[string]string

// Nodes implements [batch.System]. It returns the registered compute nodes by name. Hollow nodes are joined to one node with the name of their machine.
func (c *client) Nodes(ctx context.Context) (map[string]node, error) {
	// Times are in seconds since 1970, and do not depend on the time zone of the controller.
	out, err := c.RunOnHead(ctx, "env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "nodes")
	if err != nil {
		return nil, err
	}
	return joinHollow(parseNodes(out), c.hollowOf), nil
}

// nameOfValue matches the name of a value. Values may contain spaces.
var nameOfValue = regexp.MustCompile(`(?:^| )([A-Za-z_]+)=`)

// userText and afterReason match the names of the values that users write. SLURM prints them after all others, the reason first.
var (
	userText    = regexp.MustCompile(` (Reason|Comment|Extra|InstanceId|InstanceType|ReservationName)=`)
	afterReason = regexp.MustCompile(` (Comment|Extra|InstanceId|InstanceType|ReservationName)=`)
)

// reasonForm matches a reason, who has set it and when.
var reasonForm = regexp.MustCompile(`^(.*) (\[[^\s@\]]+@\d+\])`)

// parseNodes parses the output of `scontrol --oneliner show nodes`. A text of a user may look like other values or
// contain line breaks, so only lines that have the values of a node count, and of the texts only the reason.
func parseNodes(out string) map[string]node {
	all := map[string]node{}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, " \n")
		if !strings.HasPrefix(line, "NodeName=") {
			continue
		}
		n := node{}
		if at := userText.FindStringIndex(line); at != nil {
			if text, isReason := strings.CutPrefix(line[at[0]:], " Reason="); isReason {
				n["Reason"], n["ReasonSetBy"] = parseReason(text)
			}
			line = line[:at[0]]
		}
		matches := nameOfValue.FindAllStringSubmatchIndex(line, -1)
		for i, m := range matches {
			end := len(line)
			if i+1 < len(matches) {
				end = matches[i+1][0]
			}
			n[line[m[2]:m[3]]] = strings.TrimSpace(line[m[1]:end])
		}
		if n["State"] != "" && n["CPUTot"] != "" {
			all[n["NodeName"]] = n
		}
	}
	return all
}

// parseReason splits a text such as "bad disk [root@1795363543]" into the reason, and who has set it and when. A further text
// after this is ignored.
func parseReason(text string) (reason, setBy string) {
	if at := afterReason.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	if m := reasonForm.FindStringSubmatch(text); m != nil {
		return m[1], m[2]
	}
	return strings.TrimSpace(text), ""
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
	return n["Missing"] == "" && slices.Contains([]string{"IDLE", "MIXED", "ALLOCATED"}, n.states()[0])
}

// IsDrained implements [batch.Node].
func (n node) IsDrained() bool { return n.has("DRAIN") }

// isStatic reports whether slurm.conf has the node. Other nodes have registered as dynamic nodes.
func (n node) isStatic() bool { return !n.has("DYNAMIC_NORM") }

// isRemoved reports whether [Engine.RemoveMember] has removed a node of a static list, and its slurmd has not registered since. SLURM
// keeps the reason when the slurmd registers, so its start is compared with the time of the reason.
func (n node) isRemoved() bool {
	if !n.has("DOWN") && !n.IsDrained() || !strings.HasPrefix(n["Reason"], removedReason) {
		return false
	}
	return !n.slurmdStart().After(n.reasonTime())
}

// timeOfReason matches the time in the text that says who has set a reason and when, such as [root@1795363543].
var timeOfReason = regexp.MustCompile(`@(\d+)\]$`)

// reasonTime returns the time, by the clock of the controller, at which the reason was set, or 1970 if it is unknown.
func (n node) reasonTime() time.Time {
	var seconds int64
	if m := timeOfReason.FindStringSubmatch(n["ReasonSetBy"]); m != nil {
		seconds, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return time.Unix(seconds, 0)
}

// IsBusy implements [batch.Node].
func (n node) IsBusy() bool {
	return n.has("ALLOCATED") || n.has("MIXED") || n.has("COMPLETING") || n["CPUAlloc"] != "0" && n["CPUAlloc"] != ""
}

// drainReason is the reason of a drain by nixbench. After a killed run, the next run uncordons only nodes
// with this reason. Nodes that an administrator or SLURM has drained stay drained.
const drainReason = "nixbench: it is about to change"

// downBefore is a part of the reason of a drain, after drainReason, if an administrator had set the node to DOWN before the
// drain. The reason of the administrator follows downBefore.
const downBefore = "; down before: "

// IsDrainedByUs implements [batch.Node]: nixbench has drained the node, and no administrator has changed the reason since. SLURM
// does not change the reason of a node that is drained already, also if an epilog fails there, and deletes it with the drain.
func (n node) IsDrainedByUs() bool {
	return n.IsDrained() && (n["Reason"] == drainReason || n["Reason"] == removedReason || n.wasDown())
}

// wasDown reports whether an administrator had set the node to DOWN before nixbench drained it.
func (n node) wasDown() bool { return strings.HasPrefix(n["Reason"], drainReason+downBefore) }

// isSetDown reports whether an administrator has set the node to DOWN. SLURM itself sets nodes to DOWN as its own user, until their slurmd registers.
func (n node) isSetDown() bool {
	_, isJoined := n["AnyReady"] // hollow nodes of a machine
	return n.has("DOWN") && !isJoined && n["Reason"] != "" && !strings.HasPrefix(n["Reason"], "nixbench: ") && !strings.HasPrefix(n["ReasonSetBy"], "[slurm@")
}

// isOutOfService reports whether an administrator, or SLURM because of a failure of the node, has taken the node out of
// service. A machine is out of service if some of its hollow nodes are.
func (n node) isOutOfService() bool {
	return n.IsDrained() && !n.IsDrainedByUs() || n.isSetDown() || n["Drained"] != ""
}

// Status implements [batch.Node].
func (n node) Status() (engine.Status, bool) {
	status := engine.Status{Ready: n.isReady(), Drained: n.IsDrainedByUs(), Cordoned: n.IsDrained() || n.isOutOfService(), Version: n["Version"]}
	if n.isOutOfService() {
		status.Reason = cmp.Or(n["Drained"], n.describe())
	}
	return status, n != nil && !n.isRemoved()
}

// Problem implements [batch.Node].
func (n node) Problem() string {
	if !n.isReady() || n.IsDrained() {
		return " is " + n.describe()
	}
	if n["Drained"] != "" {
		return ": " + n["Drained"]
	}
	return ""
}

// slurmdStart returns the time, by the clock of the node, at which the slurmd that has registered was started, or 1970 if it
// is unknown.
func (n node) slurmdStart() time.Time {
	seconds, _ := strconv.ParseInt(n["SlurmdStartTime"], 10, 64)
	return time.Unix(seconds, 0)
}

// describe returns the state of a node and the reason for it.
func (n node) describe() string {
	if n["Missing"] != "" {
		return "incomplete: " + n["Missing"]
	}
	if reason := strings.TrimSpace(n["Reason"] + " " + n["ReasonSetBy"]); reason != "" {
		return n["State"] + " (" + reason + ")"
	}
	return n["State"]
}
