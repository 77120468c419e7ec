package flux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// An instance stands in for a leader: it answers the commands of the engine as flux-core 0.88.0 does. testdata contains
// what this version prints.
type instance struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*standInNode // of the configured compute nodes, those that exist or are drained
	queue struct {
		stopped bool
		reason  string
	}
	stopped string // the value of nixbench.stopped
	calls   []string
	fails   map[string]string // the error of each command that contains the key
	units   map[string]string // the sub-state of flux.service, if it is not running
}

type standInNode struct {
	offline bool
	drained bool
	reason  string
	jobs    []string
}

// newInstance returns an instance with a leader and compute nodes that are online.
func newInstance(t *testing.T, compute ...string) *instance {
	i := &instance{t: t, nodes: map[string]*standInNode{}, fails: map[string]string{}, units: map[string]string{}}
	for _, name := range compute {
		i.nodes[name] = &standInNode{}
	}
	return i
}

// engine returns an engine of a hive with the leader head and compute nodes of the role compute.
func (i *instance) engine(compute ...string) *Engine {
	const settings = `{"drainTimeout": 1, "version": "0.88.0"}`
	members := []engine.Member{{Node: "head", HiveRole: "leader", Engine: nixeval.Engine{Kind: Kind.Name, Role: Leader, OneByOne: true, Settings: []byte(settings)}}}
	for _, name := range compute {
		members = append(members, engine.Member{Node: name, HiveRole: "compute", Engine: nixeval.Engine{Kind: Kind.Name, Role: Compute, Settings: []byte(settings)}})
	}
	return New(engine.Cluster{Name: "bench", Members: members, Run: i.run})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// status prints what statusScript prints. Node c-9 is configured and does not exist.
func (i *instance) status() string {
	lines := map[string][]string{}
	add := func(state, name string) { lines[state] = append(lines[state], name) }
	for _, name := range slices.Sorted(maps.Keys(i.nodes)) {
		n := i.nodes[name]
		presence := "online"
		if n.offline {
			presence = "offline"
		}
		switch {
		case n.drained && len(n.jobs) > 0:
			add("draining|"+presence+"|%s|"+n.reason, name)
		case n.drained:
			add("drained|"+presence+"|%s|"+n.reason, name)
		default:
			add("avail|"+presence+"|%s|", name)
		}
		if len(n.jobs) > 0 {
			add("allocated|"+presence+"|%s|", name)
		}
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, line+"\n", strings.Join(lines[line], ","))
	}
	b.WriteString("avail|offline|c-[90-91]|\nexclude|online|head|\ntorpid|online||\n\n")
	switch {
	case i.queue.stopped && i.queue.reason != "":
		b.WriteString("Job submission is enabled\nScheduling is stopped: " + i.queue.reason + "\n")
	case i.queue.stopped:
		b.WriteString("Job submission is enabled\nScheduling is stopped\n")
	default:
		b.WriteString("Job submission is enabled\nScheduling is started\n")
	}
	b.WriteString("\n" + i.stopped + "\n")
	return b.String()
}

func (i *instance) run(ctx context.Context, at string, _ io.Reader, argv ...string) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	line := strings.Join(argv, " ")
	i.calls = append(i.calls, at+": "+line)
	for part, text := range i.fails {
		if strings.Contains(at+": "+line, part) {
			return nil, fmt.Errorf("%s: %s: exit status 1: %s", at, argv[0], text)
		}
	}
	state := i.units[at]
	if n := i.nodes[at]; state == "" && n != nil && n.offline {
		state = "auto-restart"
	} else if state == "" {
		state = "running"
	}
	if answer, ok := enginetest.AnswerLook(argv, func(string) string { return state }, "flux-broker: no certificate"); ok {
		return answer, nil
	}
	asOwner := strings.Join(asOwner, " ")
	switch {
	case line == "sh -c "+statusScript:
		return []byte(i.status()), nil
	case line == "flux getattr version":
		return []byte("0.88.0\n"), nil
	case strings.HasPrefix(line, "flux resource drain "), strings.HasPrefix(line, "flux resource undrain "):
		return nil, i.drain(strings.Split(argv[3], ","), argv[2] == "drain", argv[4:])
	case line == "flux queue stop --quiet --message="+reason:
		i.queue.stopped, i.queue.reason = true, reason
		return nil, nil
	case strings.HasPrefix(line, "flux kvs put nixbench.stopped="):
		_, i.stopped, _ = strings.Cut(argv[3], "=")
		return nil, nil
	case line == "flux kvs unlink nixbench.stopped" && i.stopped != "":
		i.stopped = ""
		return nil, nil
	case line == "flux queue start --quiet":
		i.queue.stopped, i.queue.reason = false, ""
		return nil, nil
	case strings.HasPrefix(line, "flux jobs --no-header -A --filter=running --format={id.f58plain}"):
		name, _ := strings.CutPrefix(argv[len(argv)-1], "--include=")
		jobs := []string{}
		for node, n := range i.nodes {
			if node == name || len(argv) == 6 {
				jobs = append(jobs, n.jobs...)
			}
		}
		return []byte(strings.Join(jobs, "\n")), nil
	case strings.HasPrefix(line, "flux overlay disconnect "):
		i.nodes[argv[3]].offline = true
		return nil, nil
	case strings.HasPrefix(line, "systemctl stop "):
		i.nodes[at].offline = true
		return nil, nil
	case strings.HasPrefix(line, "systemctl start "):
		i.nodes[at].offline = false
		return nil, nil
	case strings.HasPrefix(line, "journalctl "):
		return []byte("flux-broker: no certificate\n"), nil
	case strings.HasPrefix(line, asOwner+" flux run "):
		return nil, nil
	case strings.HasPrefix(line, asOwner+" sh -c "):
		return nil, nil
	}
	i.t.Errorf("%s: unexpected command %q", at, line)
	return nil, errors.New("unexpected command")
}

// drain drains or undrains nodes. Flux refuses to drain a drained node, and to undrain another one.
func (i *instance) drain(nodes []string, drained bool, reason []string) error {
	for _, name := range nodes {
		n := i.nodes[name]
		if n == nil || n.drained == drained {
			return fmt.Errorf("head: flux: exit status 1: flux-resource: ERROR: rank(s) of %s already drained", name)
		}
	}
	for _, name := range nodes {
		i.nodes[name].drained, i.nodes[name].reason = drained, strings.Join(reason, " ")
	}
	return nil
}

// called reports whether a command that contains the text was run.
func (i *instance) called(text string) bool {
	return slices.ContainsFunc(i.calls, func(call string) bool { return strings.Contains(call, text) })
}

func quiet(_, _ string) {}

func TestContract(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) *enginetest.Cluster {
		i := newInstance(t, "c-1", "c-2")
		return &enginetest.Cluster{
			Engine: i.engine("c-1", "c-2"), Nodes: [3]string{"head", "c-1", "c-2"},
			BlockDrain: func(name string) { i.nodes[name].jobs = []string{"f12"} },
			Break:      func(name string) { i.nodes[name].offline = true },
			Reopen:     func() engine.Engine { return i.engine("c-1", "c-2") },
		}
	})
}

// The leader's drain stops the queue and waits for the jobs of all nodes.
func TestDrainLeader(t *testing.T) {
	i := newInstance(t, "c-1")
	e := i.engine("c-1")
	if err := e.Drain(t.Context(), []string{"head"}, engine.DrainOptions{}, quiet); err != nil || i.queue.reason != reason {
		t.Errorf("%v, %+v", err, i.queue)
	}
	if members, err := e.Members(t.Context()); err != nil || !members["head"].Drained || members["c-1"].Drained {
		t.Errorf("%v, %v", members, err)
	}
	if err := e.Uncordon(t.Context(), "head"); err != nil || i.queue.stopped {
		t.Errorf("%v, %+v", err, i.queue)
	}
	i.nodes["c-1"].jobs = []string{"f12"}
	err := e.Drain(t.Context(), []string{"head"}, engine.DrainOptions{}, quiet)
	if err == nil || err.Error() != "head: drain: a restart of the leader ends all jobs, and after 1s there still are jobs f12" || i.queue.stopped {
		t.Errorf("%v, %+v", err, i.queue)
	}
}

// A restart of the leader's broker removes the reason of a stopped queue. The scheduler starts after the broker.
func TestLeaderRestarts(t *testing.T) {
	i := newInstance(t, "c-1")
	e := i.engine("c-1")
	if err := e.Drain(t.Context(), []string{"head"}, engine.DrainOptions{}, quiet); err != nil {
		t.Fatal(err)
	}
	i.queue.reason = noScheduler
	if err := e.checkReady(t.Context(), "head"); err == nil || err.Error() != "the scheduler has not started" {
		t.Error(err)
	}
	i.queue.reason = ""
	e = i.engine("c-1") // of another run
	if err := e.WaitReady(t.Context(), "head", quiet); err != nil {
		t.Error(err)
	}
	if members, err := e.Members(t.Context()); err != nil || !members["head"].Drained {
		t.Errorf("%v, %v", members, err)
	}
	if err := e.Uncordon(t.Context(), "head"); err != nil || i.queue.stopped || i.stopped != "" {
		t.Errorf("%v, %+v, %q", err, i.queue, i.stopped)
	}
	i.queue.stopped = true // by an administrator, without a reason
	if members, err := e.Members(t.Context()); err != nil || members["head"].Drained {
		t.Errorf("%v, %v", members, err)
	}
}

// A killed run has stopped the queue, and the next drain of the leader fails: the queue is started, because otherwise no
// job of the instance would start.
func TestDrainLeaderAfterKilledRun(t *testing.T) {
	i := newInstance(t, "c-1")
	i.queue.stopped, i.queue.reason, i.stopped = true, reason, "all"
	i.nodes["c-1"].jobs = []string{"f12"}
	if err := i.engine("c-1").Drain(t.Context(), []string{"head"}, engine.DrainOptions{}, quiet); err == nil || i.queue.stopped || i.stopped != "" {
		t.Errorf("%v, %+v, %q", err, i.queue, i.stopped)
	}
}

// A node that an administrator has drained stays drained, and its jobs are waited for. A queue that an administrator has
// stopped stays stopped.
func TestAdministratorsDrain(t *testing.T) {
	i := newInstance(t, "c-1", "c-2")
	i.nodes["c-1"].drained, i.nodes["c-1"].reason = true, "bad disk"
	i.queue.stopped, i.queue.reason = true, "holidays"
	e := i.engine("c-1", "c-2")
	all := []string{"head", "c-1", "c-2"}
	if err := e.Drain(t.Context(), all, engine.DrainOptions{}, quiet); err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if err := e.Uncordon(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if n := i.nodes["c-1"]; !n.drained || n.reason != "bad disk" || i.nodes["c-2"].drained || i.queue.reason != "holidays" {
		t.Errorf("%+v, %+v, %+v", n, i.nodes["c-2"], i.queue)
	}
	i.nodes["c-1"].jobs = []string{"f12"}
	if err := e.Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{}, quiet); err == nil {
		t.Error("the job of a drained node is not waited for")
	}
}

// A drain that takes too long names the jobs and what to do.
func TestDrainTimeout(t *testing.T) {
	i := newInstance(t, "c-1")
	i.nodes["c-1"].jobs = []string{"f12", "f13"}
	var reports []string
	err := i.engine("c-1").Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{}, func(_, text string) { reports = append(reports, text) })
	if err == nil || err.Error() != "c-1: drain: after 1s it still has jobs f12, f13" || !strings.HasSuffix(failure.Hint(err), "nixbench.flux.drainTimeout of the leader is the time limit; --no-drain does not wait, and ends jobs if the broker restarts") {
		t.Errorf("%v", err)
	}
	if want := []string{"gets no new jobs", "waits for jobs f12, f13"}; !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
}

// A node of the hive that is offline while the leader restarts is drained, so that it gets no job before it is changed.
func TestDrainOffline(t *testing.T) {
	i := newInstance(t, "c-1", "c-2")
	i.nodes["c-1"].offline, i.nodes["c-2"].offline = true, true
	if err := i.engine("c-1").Drain(t.Context(), []string{"c-1", "c-2"}, engine.DrainOptions{}, quiet); err != nil || !i.nodes["c-1"].drained || i.nodes["c-2"].drained {
		t.Errorf("%v, %+v, %+v", err, i.nodes["c-1"], i.nodes["c-2"])
	}
}

// A leader without Flux means that there is no instance yet; a broker that does not answer is an error.
func TestMembersWithoutLeader(t *testing.T) {
	for text, exists := range map[string]bool{
		"sh: 1: flux: not found":        false,
		"sh: line 1: flux: not found":   false,
		"bash: flux: command not found": false,
		read(t, "no-broker"):            true,
	} {
		i := newInstance(t, "c-1")
		i.fails["flux resource status"] = text
		members, err := i.engine("c-1").Members(t.Context())
		if members != nil || (err != nil) != exists {
			t.Errorf("%s: %v, %v", text, members, err)
		}
	}
	if members, err := New(engine.Cluster{}).Members(t.Context()); members != nil || err != nil {
		t.Errorf("without a leader in the hive: %v, %v", members, err)
	}
}

// The broker must run, and the error has the last line of its log.
func TestInspect(t *testing.T) {
	i := newInstance(t, "c-1")
	i.units["c-1"] = "auto-restart"
	e := i.engine("c-1")
	if err := engine.Inspect(t.Context(), e, "c-1", true); err == nil || err.Error() != "flux.service ends again and again: flux-broker: no certificate" {
		t.Error(err)
	}
	if err := engine.Inspect(t.Context(), e, "head", true); err != nil {
		t.Error(err)
	}
}

// If a node cannot be removed, its broker runs as before. A broker whose machine does not answer is disconnected.
func TestRemoval(t *testing.T) {
	i := newInstance(t, "c-1")
	i.nodes["c-1"].drained = true
	i.fails["flux resource undrain"] = "no"
	if err := i.engine("c-1").RemoveMember(t.Context(), "c-1"); err == nil || !i.called("c-1: systemctl start flux.service") {
		t.Errorf("%v, %q", err, i.calls)
	}
	i = newInstance(t, "c-1")
	i.nodes["c-1"].drained = true
	i.fails["c-1: systemctl stop"] = "unreachable"
	if err := i.engine("c-1").RemoveMember(t.Context(), "c-1"); err != nil || !i.called("head: flux overlay disconnect c-1") || i.nodes["c-1"].drained {
		t.Errorf("%v, %q", err, i.calls)
	}
}

// The engine has all capabilities: a method that two embedded types have would be no method of the engine.
var _ interface {
	engine.Engine
} = (*Engine)(nil)
