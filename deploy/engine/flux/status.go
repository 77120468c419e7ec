package flux

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
)

// status is what the leader reports about the instance.
type status struct {
	nodes  map[string]node // all configured nodes, also those without a machine
	queues []queue
}

// node is the state of a node in Flux's configuration.
type node struct {
	online  bool
	torpid  bool // torpid in Flux: the broker has not answered for a while
	drained bool // gets no new jobs
	busy    bool // jobs run on the node
	reason  string
	leads   *status // what the leader reports about the instance; nil for a node that is not the leader
}

// queue is a queue of jobs. The only queue of an instance without named queues has an empty name.
type queue struct {
	name    string
	started bool // jobs of the queue are started
	reason  string
	marked  bool // stoppedKey contains the queue
}

// stoppedKey is a key in Flux's key-value store. Its value contains the names of the queues that nixbench has stopped. The reason
// of a stopped queue is not enough to recognize such a queue: when the leader's broker ends, Flux itself stops all queues without
// a reason, and the queues that nixbench had stopped before lose their reason.
const stoppedKey = "nixbench.stopped"

// statusScript prints the states of the nodes, the states of the queues, and stoppedKey, each followed by an empty line.
const statusScript = `flux resource status --states=all --no-header --format='{statex}|{status}|{nodelist}|{reason}' &&
echo && flux queue status && echo && { flux kvs get ` + stoppedKey + ` 2> /dev/null; echo; }`

func (c *client) readStatus(ctx context.Context) (status, error) {
	out, err := c.RunOnHead(ctx, "sh", "-c", statusScript)
	if err != nil {
		return status{}, err
	}
	return parseStatus(out)
}

func parseStatus(out string) (status, error) {
	nodes, rest, _ := strings.Cut(out, "\n\n")
	queues, stopped, complete := strings.Cut(rest, "\n\n")
	s := status{nodes: map[string]node{}}
	for line := range strings.Lines(nodes) {
		fields := strings.SplitN(strings.TrimSpace(line), "|", 4)
		if len(fields) != 4 {
			return s, fmt.Errorf("flux resource status on the leader printed %q", line)
		}
		names, err := expandHosts(fields[2])
		if err != nil {
			return s, err
		}
		for _, name := range names {
			s.nodes[name] = s.nodes[name].withState(fields[0], fields[1], fields[3])
		}
	}
	if s.queues = parseQueues(queues, strings.Fields(stopped)); !complete || len(s.queues) == 0 {
		return s, fmt.Errorf("flux queue status on the leader printed %q", queues)
	}
	return s, nil
}

// withState returns the node with one state added, because Flux reports a node in several states, such as avail and allocated.
func (n node) withState(state, presence, reason string) node {
	n.online = n.online || presence == "online"
	switch state {
	case "drained":
		n.drained, n.reason = true, reason
	case "draining":
		n.drained, n.busy, n.reason = true, true, reason
	case "allocated", "housekeeping":
		n.busy = true
	case "torpid":
		n.torpid = true
	}
	return n
}

// startStatus matches the state of a queue, started or stopped. The state begins with the queue's name only if the instance has
// several queues.
var startStatus = regexp.MustCompile(`(?m)^(?:(\S+): )?Scheduling is (started|stopped)(?:: (.*))?$`)

// parseQueues parses the states of the queues. stopped contains the words in stoppedKey.
func parseQueues(out string, stopped []string) []queue {
	var queues []queue
	for _, m := range startStatus.FindAllStringSubmatch(out, -1) {
		q := queue{name: m[1], started: m[2] == "started", reason: strings.TrimSpace(m[3])}
		q.marked = slices.Contains(stopped, q.key())
		queues = append(queues, q)
	}
	return queues
}

// drainReason is the first part of the reason with which nixbench drains a node or stops a queue. After a run of nixbench that was
// killed, the next run ends only drains with such a reason. Nodes that an administrator or Flux itself has drained stay drained.
const drainReason = "nixbench: "

// isReady reports whether the broker works, so that the node can run jobs unless it is drained.
func (n node) isReady() bool { return n.online && !n.torpid }

// IsDrained implements [batch.Node]. The leader counts as drained only if an administrator has stopped all queues. If an earlier
// run of nixbench has stopped a queue, the result is false, so that this run drains the leader again: it writes the current names
// of the stopped queues to stoppedKey, and starts the queues if the drain fails.
func (n node) IsDrained() bool {
	if n.leads != nil {
		return !slices.ContainsFunc(n.leads.queues, func(q queue) bool { return q.started || q.isStoppedByUs() })
	}
	return n.drained
}

func (n node) IsDrainedByUs() bool {
	if n.leads != nil {
		return slices.ContainsFunc(n.leads.queues, func(q queue) bool { return q.marked || q.isStoppedByUs() })
	}
	return n.drained && strings.HasPrefix(n.reason, drainReason)
}

// Status implements [batch.Node]. Flux's configuration names all nodes that the instance may ever have. Flux reports nodes that
// do not exist as offline.
func (n node) Status() (engine.Status, bool) {
	if n.leads != nil {
		stopped := slices.ContainsFunc(n.leads.queues, queue.isStoppedByUs)
		return engine.Status{Ready: true, Drained: stopped, OneByOne: true, Cordoned: stopped}, true
	}
	status := engine.Status{Ready: n.isReady(), Drained: n.IsDrainedByUs(), Cordoned: n.drained}
	if n.drained && !status.Drained {
		status.Reason = n.describe()
	}
	return status, n.online || n.drained
}

func (n node) IsBusy() bool { return n.busy }

func (n node) Problem() string {
	if n.isReady() && !n.drained {
		return ""
	}
	return " is " + n.describe()
}

// isStoppedByUs reports whether nixbench has stopped the queue. A queue with another reason was stopped again by an
// administrator, who usually gives a reason.
func (q queue) isStoppedByUs() bool {
	return !q.started && (strings.HasPrefix(q.reason, drainReason) || q.marked && q.reason == "")
}

// key returns the word that stands for the queue in the value of stoppedKey.
func (q queue) key() string {
	if q.name == "" {
		return "all"
	}
	return q.name
}

// noScheduler is the reason that Flux shows for each queue between the start of the leader's broker and the load of the scheduler.
const noScheduler = "Scheduler is offline"

// describe returns the state of a node that takes no jobs, such as offline, and the reason of a drain.
func (n node) describe() string {
	switch {
	case !n.online:
		return "offline"
	case n.torpid:
		return "online and does not answer"
	case n.drained && n.reason != "":
		return "drained (" + n.reason + ")"
	case n.drained:
		return "drained"
	}
	return "online"
}

// maxHosts is the maximum number of hosts in a list of hosts. An instance has far fewer.
const maxHosts = 100_000

// wordForm matches the first word of a list of hosts, such as head or c-[1-3,07].
var wordForm = regexp.MustCompile(`^([^,\[]*)(?:\[([0-9,-]+)\]([^,\[]*))?(?:,|$)`)

// expandHosts returns the hosts of a list as Flux prints it (RFC 29 of Flux), such as head,c-[1-3,07].
func expandHosts(list string) ([]string, error) {
	var hosts []string
	for rest := list; rest != ""; {
		m := wordForm.FindStringSubmatch(rest)
		if m == nil || m[1]+m[2] == "" {
			return nil, fmt.Errorf("%q is no list of hosts", list)
		}
		rest = rest[len(m[0]):]
		if m[2] == "" {
			hosts = append(hosts, m[1])
			continue
		}
		for part := range strings.SplitSeq(m[2], ",") {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			from, err := strconv.ParseUint(first, 10, 32)
			to, err2 := strconv.ParseUint(last, 10, 32)
			if err != nil || err2 != nil || to < from || to-from > maxHosts || len(hosts) > maxHosts {
				return nil, fmt.Errorf("%q is no list of hosts: %s is no range", list, part)
			}
			for id := from; id <= to; id++ {
				hosts = append(hosts, fmt.Sprintf("%s%0*d%s", m[1], len(first), id, m[3]))
			}
		}
	}
	return hosts, nil
}
