package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// A controller stands in for a SLURM cluster: it answers the commands of the engine as SLURM 24.11.5 does.
// testdata contains lines that this version printed.
type controller struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*standInNode
	calls []string
	fails map[string]string // the error of each command that contains the key
	full  []string          // the disks that are full, on all nodes
	// accounting is set if slurmctld uses slurmdbd. accounts is what sacctmgr prints about the cluster.
	accounting bool
	accounts   string
}

type standInNode struct {
	static   bool     // whether the node is in slurm.conf
	flags    []string // such as DRAIN
	base     string   // the base state, such as IDLE
	reason   string
	jobs     []string
	features string
	version  string
	start    int    // SlurmdStartTime
	unit     string // the sub-state of slurmd.service
	unitTime int
	host     string // NodeHostName of a hollow node; empty: that of the node
}

// newController returns a cluster with compute nodes that are idle.
func newController(t *testing.T, compute ...string) *controller {
	c := &controller{t: t, nodes: map[string]*standInNode{}, fails: map[string]string{}, accounts: "bench|6817\n"}
	for _, name := range compute {
		c.nodes[name] = &standInNode{base: "IDLE", features: "ssd,compute", version: "24.11.5", start: 1000, unit: "running", unitTime: 1000}
	}
	return c
}

// engine returns an engine of a hive with the controller head and compute nodes of the role compute.
func (c *controller) engine(compute ...string) *Engine {
	const settings = `{"drainTimeout": 1, "features": ["ssd"], "version": "24.11.5"}`
	members := []engine.Member{{Node: "head", HiveRole: "controller", Engine: nixeval.Engine{Kind: Kind.Name, Role: Controller, OneByOne: true, Settings: []byte(settings)}}}
	for _, name := range compute {
		members = append(members, engine.Member{Node: name, HiveRole: "compute", Engine: nixeval.Engine{Kind: Kind.Name, Role: Compute, Settings: []byte(settings)}})
	}
	return New(engine.Cluster{Name: "bench", Members: members, Run: c.run})
}

// addAccounting adds a node with slurmdbd to the hive.
func addAccounting(e *Engine, node string) {
	e.Cluster.Members = append(e.Cluster.Members, engine.Member{Node: node, HiveRole: "accounting", Engine: nixeval.Engine{Kind: Kind.Name, Role: Accounting, OneByOne: true, Settings: []byte(`{"version": "24.11.5"}`)}})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// show returns the lines of `scontrol --oneliner show nodes`.
func (c *controller) show() string {
	line := strings.TrimSuffix(read(c.t, "node-idle"), "\n")
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		states := append([]string{n.base}, n.flags...)
		if !n.static {
			states = slices.Insert(states, 1, "DYNAMIC_NORM")
		}
		state := strings.Join(states, "+")
		allocated := "CPUAlloc=0"
		if len(n.jobs) > 0 {
			allocated, state = "CPUAlloc=1", strings.Replace(state, "IDLE", "MIXED", 1)
		}
		text := strings.NewReplacer("compute-1", name, "CPUAlloc=0", allocated, "State=IDLE+DYNAMIC_NORM", "State="+state,
			"SlurmdStartTime=1795363538", "SlurmdStartTime="+strconv.Itoa(n.start), "Version=24.11.5", "Version="+n.version,
			"Features=ssd,compute", "Features="+n.features).Replace(line)
		if n.host != "" {
			text = strings.Replace(text, "NodeHostName="+name, "NodeHostName="+n.host, 1)
		}
		if n.reason != "" {
			text += " Reason=" + n.reason + " [root@1795363543]"
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

func (c *controller) run(ctx context.Context, at string, _ io.Reader, argv ...string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	line := strings.TrimPrefix(strings.Join(argv, " "), strings.Join(asNobody, " ")+" ")
	c.calls = append(c.calls, at+": "+line)
	for part, text := range c.fails {
		if strings.Contains(at+": "+line, part) {
			return nil, fmt.Errorf("%s: %s: exit status 1: %s", at, argv[0], text)
		}
	}
	values := map[string]string{}
	for _, word := range argv {
		if name, value, ok := strings.Cut(strings.TrimLeft(word, "-"), "="); ok {
			values[name] = value
		}
	}
	if answer, ok := enginetest.AnswerLook(argv, func(unit string) string { return c.subState(at, unit) }, "slurmd: fatal: no key", c.full...); ok {
		return answer, nil
	}
	switch {
	case line == "env SLURM_TIME_FORMAT=%s scontrol --oneliner show nodes":
		return []byte(c.show()), nil
	case line == "scontrol ping":
		return []byte(read(c.t, "ping")), nil
	case line == "scontrol show config":
		storage := "(null)"
		if c.accounting {
			storage = "accounting_storage/slurmdbd"
		}
		return []byte(read(c.t, "config") + "AccountingStorageType   = " + storage + "\nClusterName             = bench\n"), nil
	case strings.HasPrefix(line, "sacctmgr --noheader --parsable2 show cluster bench "):
		return []byte(c.accounts), nil
	case line == "sacctmgr show configuration":
		return []byte(read(c.t, "slurmdbd")), nil
	case strings.HasPrefix(line, "scontrol update nodename="):
		return nil, c.update(expand(values["nodename"]), values)
	case strings.HasPrefix(line, "scontrol delete nodename="):
		for _, name := range expand(values["nodename"]) {
			n := c.nodes[name]
			if n == nil || n.static || len(n.jobs) > 0 {
				return nil, errors.New("head: scontrol: exit status 1: delete_node: Requested nodes are busy")
			}
			delete(c.nodes, name)
		}
		return nil, nil
	case strings.HasPrefix(line, "squeue "):
		var b strings.Builder
		for _, name := range expand(values["nodelist"]) {
			for _, job := range c.nodes[name].jobs {
				b.WriteString(job + "\n")
			}
		}
		if !strings.Contains(line, "--states=RUNNING,") {
			b.WriteString("7\n") // a job that has ended
		}
		return []byte(b.String()), nil
	case strings.Contains(line, "--property=SubState,ActiveEnterTimestamp "):
		if c.nodes[at] == nil {
			return []byte("SubState=running\nActiveEnterTimestamp=@1000\n"), nil
		}
		return fmt.Appendf(nil, "SubState=%s\nActiveEnterTimestamp=@%d\n", c.nodes[at].unit, c.nodes[at].unitTime), nil
	case strings.HasPrefix(line, "sh -c "+registerScript):
		c.accounts = "bench|6817\n"
		return nil, nil
	case strings.HasPrefix(line, "systemctl "), strings.HasPrefix(line, "scancel "), line == "sh -c "+restartScript:
		return nil, nil
	case strings.HasPrefix(line, "srun "), strings.HasPrefix(line, "sbatch "):
		return nil, nil
	case strings.HasPrefix(line, "munge "), line == "unmunge":
		return []byte("MUNGE:x:\n"), nil
	case strings.HasPrefix(line, "journalctl "):
		return []byte("slurmd: fatal: no key\n"), nil
	}
	c.t.Errorf("%s: unexpected command %q", at, line)
	return nil, errors.New("unexpected command")
}

// subState returns the sub-state of a unit on a node.
func (c *controller) subState(at, unit string) string {
	if n := c.nodes[at]; n != nil && unit == "slurmd.service" {
		return n.unit
	}
	return "running"
}

// expand returns the names in a list such as a,b-h[1,2].
func expand(list string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`([^,\[]+)(?:\[([0-9,]+)\])?`).FindAllStringSubmatch(list, -1) {
		for number := range strings.SplitSeq(m[2], ",") {
			names = append(names, m[1]+number)
		}
	}
	return names
}

func (c *controller) update(nodes []string, values map[string]string) error {
	for _, name := range nodes {
		n := c.nodes[name]
		if n == nil {
			return errors.New("head: scontrol: exit status 1: slurm_update error: Invalid node name specified")
		}
		switch values["state"] {
		case "down":
			n.base, n.reason = "DOWN", values["reason"]
		case "drain":
			n.flags, n.reason = []string{"DRAIN"}, values["reason"]
		case "undrain":
			if n.base != "DOWN" {
				n.reason = ""
			}
			n.flags = slices.DeleteFunc(n.flags, func(f string) bool { return f == "DRAIN" })
		}
		if list, ok := values["availablefeatures"]; ok {
			n.features = list
		}
	}
	return nil
}

// called reports whether a command that contains the text was run.
func (c *controller) called(text string) bool { return c.index(text) >= 0 }

// index returns the number of the first command that contains the text, or -1.
func (c *controller) index(text string) int {
	return slices.IndexFunc(c.calls, func(call string) bool { return strings.Contains(call, text) })
}

func quiet(_, _ string) {}

func TestContract(t *testing.T) {
	for name, static := range map[string]bool{"dynamic": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) *enginetest.Cluster {
				c := newController(t, "c-1", "c-2")
				for _, n := range c.nodes {
					n.static = static
				}
				return &enginetest.Cluster{
					Engine: c.engine("c-1", "c-2"), Nodes: [3]string{"head", "c-1", "c-2"},
					BlockDrain: func(name string) { c.nodes[name].jobs = []string{"12"} },
					Break:      func(name string) { c.nodes[name].base = "DOWN" },
					Reopen:     func() engine.Engine { return c.engine("c-1", "c-2") },
				}
			})
		})
	}
}

// A removed node of a static list takes no jobs before it is admitted and its slurmd registers again, also if SLURM makes it
// available because of a late answer to a ping.
func TestRemoveStaticNode(t *testing.T) {
	c := newController(t, "c-1")
	n := c.nodes["c-1"]
	n.static = true
	e := c.engine("c-1")
	wantRemoved := func() {
		t.Helper()
		if members, err := e.Members(t.Context()); err != nil || len(members) != 1 {
			t.Errorf("%v, %v", members, err)
		}
		if !slices.Contains(n.flags, "DRAIN") || n.reason != removedReason {
			t.Errorf("%+v", n)
		}
	}
	for _, flags := range [][]string{nil, {"DRAIN"}} {
		n.base, n.flags, n.reason, n.start = "IDLE", flags, "", 1000
		if len(flags) > 0 {
			n.reason = drainReason
		}
		if err := e.RemoveMember(t.Context(), "c-1"); err != nil || n.base != "DOWN" {
			t.Errorf("%v, %+v", err, n)
		}
		wantRemoved()
		n.base = "IDLE" // SLURM has processed a late answer to a ping
		wantRemoved()
		if err := e.Uncordon(t.Context(), "c-1"); err != nil {
			t.Error(err)
		}
		wantRemoved()
		n.start = 1795363544 // a new slurmd has registered, and the run that deployed it was killed
		if members, err := e.Members(t.Context()); err != nil || !members["c-1"].Ready || !members["c-1"].Drained {
			t.Errorf("%v, %v", members, err)
		}
		if err := e.Admit(t.Context(), "c-1"); err != nil || len(n.flags) > 0 {
			t.Errorf("%v, %+v", err, n)
		}
	}
	n.base, n.reason = "DOWN", removedReason // slurmd has registered and failed later
	if members, err := e.Members(t.Context()); err != nil || len(members) != 2 || members["c-1"].Ready {
		t.Errorf("%v, %v", members, err)
	}
}

// The drain of a node by an administrator does not end when the node is removed and admitted again.
func TestRemoveDrainedStaticNode(t *testing.T) {
	c := newController(t, "c-1")
	n := c.nodes["c-1"]
	n.static, n.flags, n.reason = true, []string{"DRAIN"}, "bad disk"
	e := c.engine("c-1")
	for range 2 {
		if err := e.RemoveMember(t.Context(), "c-1"); err != nil || n.reason != removedReason+"; drained before: bad disk" {
			t.Errorf("%v, %+v", err, n)
		}
		if members, err := e.Members(t.Context()); err != nil || len(members) != 1 {
			t.Errorf("%v, %v", members, err)
		}
	}
	if err := e.Admit(t.Context(), "c-1"); err != nil || len(n.flags) != 1 {
		t.Errorf("%v, %+v", err, n)
	}
	n.base, n.start = "IDLE", 1795363544
	if members, err := e.Members(t.Context()); err != nil || !members["c-1"].Cordoned || members["c-1"].Drained {
		t.Errorf("%v, %v", members, err)
	}
}

// Nodes have the values that SLURM printed; texts of users cannot replace them.
func TestParseNodes(t *testing.T) {
	n := parseNodes(read(t, "node-drained"))["compute-1"]
	if n == nil || n["State"] != "IDLE+DRAIN+DYNAMIC_NORM" || n["Version"] != "24.11.5" || n["OS"] != "Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0" ||
		n["Reason"] != "nixbench: it is about to change State=DOWN" || !n.isReady() || n.IsDrainedByUs() || n.IsBusy() {
		t.Errorf("%q", n)
	}
	if all := parseNodes("No nodes in the system\n"); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

// The texts that follow a node's values, as SLURM 24.11.5 prints them, and the description of the node.
func TestParseTexts(t *testing.T) {
	const ours = " Reason=nixbench: it is about to change [root@1795386144]"
	for text, want := range map[string]struct {
		state string
		ours  bool
	}{
		"":                               {"IDLE+DYNAMIC_NORM+DRAIN", false},
		ours:                             {"IDLE+DYNAMIC_NORM+DRAIN (nixbench: it is about to change [root@1795386144])", true},
		ours + " Comment=rack 7 [bob@1]": {"IDLE+DYNAMIC_NORM+DRAIN (nixbench: it is about to change [root@1795386144])", true},
		" Reason=nixbench: it is about to change, and a bad disk [bob@1795386151]":         {"IDLE+DYNAMIC_NORM+DRAIN (nixbench: it is about to change, and a bad disk [bob@1795386151])", false},
		" Reason=nixbench: it is about to change [root@5] no, a bad disk [bob@1795386151]": {"IDLE+DYNAMIC_NORM+DRAIN (nixbench: it is about to change [root@5] no, a bad disk [bob@1795386151])", false},
		" Reason=bad disk State=DOWN [root@5] Reason=x [root@1795386144]":                  {"IDLE+DYNAMIC_NORM+DRAIN (bad disk State=DOWN [root@5] Reason=x [root@1795386144])", false},
		" Reason=first line [root@1795386144]        second State=DOWN line":               {"IDLE+DYNAMIC_NORM+DRAIN (first line [root@1795386144])", false},
		" Comment=one" + ours: {"IDLE+DYNAMIC_NORM+DRAIN", false},
		" Comment=one\nNodeName=compute-9 State=IDLE Extra=a=b": {"IDLE+DYNAMIC_NORM+DRAIN", false},
	} {
		all := parseNodes(strings.Replace(strings.TrimSuffix(read(t, "node-idle"), "\n"), "State=IDLE+DYNAMIC_NORM", "State=IDLE+DYNAMIC_NORM+DRAIN", 1) + text + "\n")
		if n := all["compute-1"]; len(all) != 1 || n.describe() != want.state || n.IsDrainedByUs() != want.ours || n["SlurmdStartTime"] != "1795363538" {
			t.Errorf("%q: %q", text, all)
		}
	}
}

// Which states count as ready and as busy.
func TestStates(t *testing.T) {
	for state, want := range map[string]struct{ ready, busy, drained bool }{
		"IDLE+DYNAMIC_NORM":                     {true, false, false},
		"MIXED+DYNAMIC_NORM":                    {true, true, false},
		"ALLOCATED+DRAIN+DYNAMIC_NORM":          {true, true, true},
		"IDLE+COMPLETING+DRAIN":                 {true, true, true},
		"IDLE+DYNAMIC_NORM+NOT_RESPONDING":      {false, false, false},
		"DOWN+DYNAMIC_NORM+NOT_RESPONDING":      {false, false, false},
		"IDLE+DRAIN+DYNAMIC_NORM+INVALID_REG":   {false, false, true},
		"UNKNOWN+DYNAMIC_NORM+NOT_RESPONDING":   {false, false, false},
		"DOWN+DRAIN+DYNAMIC_NORM+REBOOT_ISSUED": {false, false, true},
	} {
		n := node{"State": state, "CPUAlloc": "0"}
		if n.isReady() != want.ready || n.IsBusy() != want.busy || n.IsDrained() != want.drained {
			t.Errorf("%s: ready %v, busy %v, drained %v", state, n.isReady(), n.IsBusy(), n.IsDrained())
		}
	}
}

// A controller without SLURM means that there is no cluster yet; a controller that does not answer is an error.
func TestMembersWithoutController(t *testing.T) {
	for text, exists := range map[string]bool{
		"env: 'scontrol': No such file or directory":                                  false,
		"env: \u2018scontrol\u2019: No such file or directory":                        false,
		"sudo: scontrol: command not found":                                           false,
		"scontrol: fatal: Could not establish a configuration source":                 false,
		"slurm_load_node error: Unable to contact slurm controller (connect failure)": true,
		"scontrol: error: If munged is up, restart with --num-threads=10\nscontrol: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory": true,
	} {
		c := newController(t, "c-1")
		c.fails["show nodes"] = text
		members, err := c.engine("c-1").Members(t.Context())
		if members != nil || (err != nil) != exists {
			t.Errorf("%s: %v, %v", text, members, err)
		}
	}
}

// A node that an administrator has drained stays drained, and its jobs are waited for.
func TestAdministratorsDrain(t *testing.T) {
	c := newController(t, "c-1", "c-2")
	c.nodes["c-1"].flags, c.nodes["c-1"].reason = []string{"DRAIN"}, "bad disk"
	e := c.engine("c-1", "c-2")
	if err := e.Drain(t.Context(), []string{"c-1", "c-2"}, engine.DrainOptions{}, quiet); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c-1", "c-2"} {
		if err := e.Uncordon(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if n := c.nodes["c-1"]; !slices.Equal(n.flags, []string{"DRAIN"}) || n.reason != "bad disk" || len(c.nodes["c-2"].flags) > 0 {
		t.Errorf("%+v, %+v", n, c.nodes["c-2"])
	}
	c.nodes["c-1"].jobs = []string{"12"}
	if err := e.Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{}, quiet); err == nil {
		t.Error("the job of a drained node is not waited for")
	}
}

// A node that an administrator has set to DOWN stays out of service while it changes, also if its slurmd registers (ReturnToService) or the run is
// killed, and is drained afterwards with the same reason. It is no failure at the end of a run.
func TestAdministratorsDown(t *testing.T) {
	for name, registers := range map[string]bool{"slurmd restarts": true, "slurmd runs on": false} {
		c := newController(t, "c-1", "c-2")
		n := c.nodes["c-1"]
		n.base, n.reason = "DOWN", "bad disk: sda"
		e := c.engine("c-1", "c-2")
		if members, err := e.Members(t.Context()); err != nil || !members["c-1"].Cordoned || members["c-1"].Drained || !strings.Contains(members["c-1"].Reason, "bad disk: sda") {
			t.Errorf("%s: %+v, %v", name, members, err)
		}
		if err := e.Drain(t.Context(), []string{"c-1", "c-2"}, engine.DrainOptions{}, quiet); err != nil {
			t.Fatal(err)
		}
		if registers {
			n.base = "IDLE"
		}
		if !slices.Equal(n.flags, []string{"DRAIN"}) || !strings.HasSuffix(n.reason, "bad disk: sda") {
			t.Errorf("%s: %+v", name, n)
		}
		later := c.engine("c-1", "c-2") // of another run
		for _, node := range []string{"c-1", "c-2"} {
			if err := errors.Join(later.WaitReady(t.Context(), node, quiet), later.Uncordon(t.Context(), node)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n.reason != "bad disk: sda" || len(n.flags) != 1 || len(c.nodes["c-2"].flags) > 0 {
			t.Errorf("%s: %+v, %+v", name, n, c.nodes["c-2"])
		}
		for _, except := range [][]string{nil, {"c-1"}} {
			if err := e.CheckNodes(t.Context(), engine.CheckOptions{Except: except}); (err == nil) != (except != nil) {
				t.Errorf("%s: except %q: %v", name, except, err)
			}
		}
	}
	c := newController(t, "c-1", "c-2")
	c.nodes["c-1"].base = "DOWN"
	for _, away := range [][]string{nil, {"c-1", "c-3"}} { // c-3 has never registered
		if err := c.engine("c-1", "c-2", "c-3").CheckNodes(t.Context(), engine.CheckOptions{Away: away}); (err == nil) != (away != nil) {
			t.Errorf("away %q: %v", away, err)
		}
	}
	down := node{"State": "DOWN+DYNAMIC_NORM", "Reason": "Not responding", "ReasonSetBy": "[slurm@1795363543]"}
	if down.isOutOfService() {
		t.Error("a node that does not respond is out of service")
	}
}

// A drain ends soon if the controller does not answer any more.
func TestDrainWithoutController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, "c-1")
		e := c.engine("c-1")
		e.Cluster.Members[0].Settings = []byte(`{"drainTimeout": 86400}`)
		c.nodes["c-1"].jobs = []string{"12"}
		began := time.Now()
		err := e.Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{}, func(string, string) { c.fails["show nodes"] = "Unable to contact slurm controller (connect failure)" })
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "connect failure") || took > 2*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// What is wrong on the node of a daemon.
func TestLook(t *testing.T) {
	c := newController(t, "c-1")
	c.nodes["c-1"].unit = "failed"
	c.full = []string{"/var"}
	faults, err := c.engine("c-1").FindFaults(t.Context(), "c-1")
	if err != nil || len(faults) != 2 || faults[0].String() != "slurmd.service is failed: slurmd: fatal: no key" || !faults[0].Down || faults[1].String() != "the disk of /var is full" {
		t.Errorf("%v, %v", faults, err)
	}
	if faults, err := c.engine("c-1").FindFaults(t.Context(), "stranger"); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// A drain that takes too long names the jobs and what to do.
func TestDrainTimeout(t *testing.T) {
	c := newController(t, "c-1")
	c.nodes["c-1"].jobs = []string{"12", "13"}
	var reports []string
	err := c.engine("c-1").Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{}, func(_, text string) { reports = append(reports, text) })
	if err == nil || err.Error() != "c-1: drain: after 1s it still has jobs 12, 13" || !strings.HasSuffix(failure.Hint(err), "nixbench.slurm.drainTimeout of the controller is the time limit; with --no-drain the node changes while they run") {
		t.Errorf("%v", err)
	}
	if want := []string{"gets no new jobs", "waits for jobs 12, 13"}; !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
}

// slurmd must have registered since its last start.
func TestWaitForRegistration(t *testing.T) {
	c := newController(t, "c-1")
	c.nodes["c-1"].unitTime = 1001 // slurmd has registered at 1000
	e := c.engine("c-1")
	if err := e.checkReady(t.Context(), "c-1"); err == nil || err.Error() != "its slurmd has not registered since it was started" {
		t.Error(err)
	}
	c.nodes["c-1"].unit = "auto-restart"
	if err := e.checkReady(t.Context(), "c-1"); err == nil || err.Error() != "its slurmd is auto-restart" {
		t.Error(err)
	}
	if err := engine.Inspect(t.Context(), e, "c-1", true); err == nil || err.Error() != "slurmd.service ends again and again: slurmd: fatal: no key" {
		t.Error(err)
	}
	if err := engine.Inspect(t.Context(), e, "head", true); err != nil || c.called("head: munge ") {
		t.Error(err, c.calls)
	}
	c.nodes["c-1"].unit = "running"
	if err := engine.Inspect(t.Context(), e, "c-1", true); err != nil || !c.called("head: munge ") || !c.called("c-1: unmunge") {
		t.Error(err, c.calls)
	}
	c.fails["c-1: unmunge"] = "Invalid credential"
	if err := engine.Inspect(t.Context(), e, "c-1", true); err == nil || !strings.Contains(err.Error(), "munged.service does not accept what munged of head has signed") {
		t.Error(err)
	}
}

// If a node cannot be removed, its slurmd runs as before.
func TestRemovalFails(t *testing.T) {
	c := newController(t, "c-1")
	c.fails["scontrol delete"] = "delete_node nodename=c-1: Requested nodes are busy"
	if err := c.engine("c-1").RemoveMember(t.Context(), "c-1"); err == nil || !c.called("c-1: systemctl start slurmd.service") {
		t.Errorf("%v, %q", err, c.calls)
	}
}

func TestAdjust(t *testing.T) {
	c := newController(t, "c-1", "c-2")
	c.nodes["c-2"].features = "compute,old"
	e := c.engine("c-1", "c-2")
	for _, dry := range []bool{true, false} {
		changes, err := e.Adjust(t.Context(), []string{"head", "c-1", "c-2"}, dry)
		if err != nil || len(changes) != 1 || !slices.Equal(changes["c-2"], []string{"feature ssd", "no feature old"}) {
			t.Errorf("%v, %v", changes, err)
		}
		if changed := c.nodes["c-2"].features == "ssd,compute"; changed == dry {
			t.Errorf("dry %v: features %s", dry, c.nodes["c-2"].features)
		}
	}
	c.nodes["c-2"].features, c.nodes["c-2"].static = "compute", true // the features of a static node are in slurm.conf
	if changes, err := e.Adjust(t.Context(), []string{"c-2"}, false); err != nil || len(changes) > 0 {
		t.Errorf("%v, %v", changes, err)
	}
}

// slurmd registers only when it starts, so it is restarted on nodes that a recreated controller does not have.
func TestAdmit(t *testing.T) {
	for name, want := range map[string][]string{"head": {"c-1", "c-3"}, "c-1": {"c-1"}, "c-2": nil, "stranger": nil} {
		c := newController(t, "c-2")
		if err := c.engine("c-1", "c-2", "c-3").Admit(t.Context(), name); err != nil {
			t.Error(err)
		}
		var restarted []string
		for _, call := range c.calls {
			if node, script, _ := strings.Cut(call, ": "); strings.HasSuffix(script, "systemctl restart slurmd.service") {
				restarted = append(restarted, node)
			}
		}
		if slices.Sort(restarted); !slices.Equal(restarted, want) {
			t.Errorf("Admit(%s) has restarted slurmd on %q, want %q", name, restarted, want)
		}
	}
	c := newController(t)
	c.fails["c-1: sh"] = "unreachable"
	if err := c.engine("c-1").Admit(t.Context(), "head"); err != nil {
		t.Errorf("the controller is not admitted: %v", err)
	}
	if err := c.engine("c-1").Admit(t.Context(), "c-1"); err == nil {
		t.Error("a node that cannot be reached is admitted")
	}
}

// A drain that is cancelled while it waits for jobs removes its marks, and does not lift the drain that an administrator has set meanwhile.
func TestDrainCancelledAfterAdministratorsDrain(t *testing.T) {
	c := newController(t, "c-1", "c-2")
	c.nodes["c-1"].jobs = []string{"12"}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.engine("c-1", "c-2").Drain(ctx, []string{"c-1", "c-2"}, engine.DrainOptions{}, func(_, text string) {
		if strings.HasPrefix(text, "waits for") {
			c.nodes["c-1"].reason = "bad disk"
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(c.nodes["c-1"].flags) != 1 || len(c.nodes["c-2"].flags) > 0 {
		t.Errorf("%v, %+v, %+v", err, c.nodes["c-1"], c.nodes["c-2"])
	}
}

// The engine has all capabilities: a method that two embedded types have would be no method of the engine.
var _ interface {
	engine.Engine
	engine.Admitter
	engine.Adjuster
} = (*Engine)(nil)
