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

// node contains the values of a node by their names (such as State), as `scontrol show nodes` prints them.
type node map[string]string

// Nodes implements [batch.System]. It returns the registered compute nodes by name. All hollow nodes of a machine are joined to
// one node with the name of the machine.
func (c *client) Nodes(ctx context.Context) (map[string]node, error) {
	// Times are in seconds since 1970, and do not depend on the time zone of the controller.
	out, err := c.RunOnHead(ctx, "env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "nodes")
	if err != nil {
		return nil, err
	}
	return joinHollow(parseNodes(out), c.hollowOf), nil
}

var nameOfValue = regexp.MustCompile(`(?:^| )([A-Za-z_]+)=`)

// userText and afterReason match the names of values with texts that users write. SLURM prints these values after all others,
// Reason first.
var (
	userText    = regexp.MustCompile(` (Reason|Comment|Extra|InstanceId|InstanceType|ReservationName)=`)
	afterReason = regexp.MustCompile(` (Comment|Extra|InstanceId|InstanceType|ReservationName)=`)
)

// reasonForm matches a reason, with the user who has set it and the time.
var reasonForm = regexp.MustCompile(`^(.*) (\[[^\s@\]]+@(\d+)\])`)

// parseNodes parses the output of `scontrol --oneliner show nodes`. The texts that users write may look like values or contain
// line breaks. So parseNodes reads only lines that have the values of a node, and only the reason of the users' texts.
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
				n.setReason(text)
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

// setReason splits a text such as "bad disk [root@1795363543]" into the reason, who has set the reason, and the time. It ignores any text
// after them.
func (n node) setReason(text string) {
	if at := afterReason.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	n["Reason"] = strings.TrimSpace(text)
	if m := reasonForm.FindStringSubmatch(text); m != nil {
		n["Reason"], n["ReasonSetBy"], n["ReasonTime"] = m[1], m[2], m[3]
	}
}

// time returns the time in a value. It returns 1970 if the time is unknown.
func (n node) time(name string) time.Time {
	seconds, _ := strconv.ParseInt(n[name], 10, 64)
	return time.Unix(seconds, 0)
}

// states returns the base state, such as IDLE or MIXED, and the flags of a node, such as DRAIN.
func (n node) states() []string { return strings.Split(n["State"], "+") }

func (n node) has(state string) bool { return slices.Contains(n.states(), state) }

// isReady reports whether the node's slurmd works, so that the node can run jobs unless it is drained.
func (n node) isReady() bool {
	for _, bad := range []string{"NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "POWERED_DOWN", "POWERING_DOWN", "FAIL"} {
		if n.has(bad) {
			return false
		}
	}
	return n["Missing"] == "" && slices.Contains([]string{"IDLE", "MIXED", "ALLOCATED"}, n.states()[0])
}

func (n node) IsDrained() bool { return n.has("DRAIN") }

// isStatic reports whether slurm.conf has the node. Other nodes have registered as dynamic nodes.
func (n node) isStatic() bool { return !n.has("DYNAMIC_NORM") }

// isRemoved reports whether [Engine.RemoveMember] has removed a node of the static list in slurm.conf, and the node's slurmd has
// not registered since then. SLURM keeps the reason of the removal when slurmd registers, so the start of slurmd is compared with
// the time of the reason.
func (n node) isRemoved() bool {
	if !n.has("DOWN") && !n.IsDrained() || !strings.HasPrefix(n["Reason"], removedReason) {
		return false
	}
	return !n.slurmdStart().After(n.time("ReasonTime"))
}

func (n node) IsBusy() bool {
	return n.has("ALLOCATED") || n.has("MIXED") || n.has("COMPLETING") || n["CPUAlloc"] != "0" && n["CPUAlloc"] != ""
}

// drainReason is the reason with which nixbench drains a node. If a run of nixbench was killed, the next run uncordons only nodes
// with this reason. Nodes that an administrator or SLURM has drained stay drained.
const drainReason = "nixbench: it is about to change"

// IsDrainedByUs implements [batch.Node]: nixbench has drained the node, and no administrator has changed the reason since then.
// SLURM itself does not change the reason of a node that is already drained, even if an epilog fails on the node, and deletes the
// reason at the end of the drain.
func (n node) IsDrainedByUs() bool {
	return n.IsDrained() && (n["Reason"] == drainReason || n["Reason"] == removedReason)
}

// isSetDown reports whether an administrator has set the node to DOWN. SLURM sets nodes to DOWN as its own user, until their
// slurmd registers.
func (n node) isSetDown() bool {
	_, isJoined := n["AnyReady"] // the joined hollow nodes of a machine
	return n.has("DOWN") && !isJoined && n["Reason"] != "" && !strings.HasPrefix(n["Reason"], "nixbench: ") && !strings.HasPrefix(n["ReasonSetBy"], "[slurm@")
}

// isOutOfService reports whether an administrator, or SLURM after a failure of the node, has taken the node out of service. A
// machine with hollow nodes is out of service if some of them are.
func (n node) isOutOfService() bool {
	return n.IsDrained() && !n.IsDrainedByUs() || n.isSetDown() || n["Drained"] != ""
}

func (n node) Status() (engine.Status, bool) {
	status := engine.Status{Ready: n.isReady(), Drained: n.IsDrainedByUs(), Cordoned: n.IsDrained() || n.isOutOfService(), Version: n["Version"]}
	if n.isOutOfService() {
		status.Reason = cmp.Or(n["Drained"], n.describe())
	}
	return status, n != nil && !n.isRemoved()
}

func (n node) Problem() string {
	if !n.isReady() || n.IsDrained() {
		return " is " + n.describe()
	}
	if n["Drained"] != "" {
		return ": " + n["Drained"]
	}
	return ""
}

// slurmdStart returns when the slurmd that has registered was started, by the clock of the node.
func (n node) slurmdStart() time.Time { return n.time("SlurmdStartTime") }

func (n node) describe() string {
	if n["Missing"] != "" {
		return "incomplete: " + n["Missing"]
	}
	if reason := strings.TrimSpace(n["Reason"] + " " + n["ReasonSetBy"]); reason != "" {
		return n["State"] + " (" + reason + ")"
	}
	return n["State"]
}
