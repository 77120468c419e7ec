package stages

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/hostkeys"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// effects returns the changes on the hypervisor after the first since ones.
func (w *world) effects(since int) []string {
	var out []string
	for _, s := range w.h.Log()[since:] {
		out = append(out, strings.TrimSpace(s.String()))
	}
	return out
}

func TestApplyToEmptyHypervisor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 3})
	w.starting = true
	results, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.events, func(e event.Event) bool { return e.Text == "its system is still starting" }) {
		t.Error("the run has not waited for a system that is starting")
	}
	wantTexts(t, outcomes(results), "w-1 switched", "w-2 switched", "w-3 switched")
	if len(w.questions) > 0 {
		t.Errorf("creation asks: %q", w.questions)
	}
	r, err := facts.Load(w.dir.Facts())
	if err != nil {
		t.Fatal(err)
	}
	for i, node := range []string{"w-1", "w-2", "w-3"} {
		n := r.Nodes[node]
		if n.Address.String() != []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}[i] || n.HostKey == "" || n.MAC == "" {
			t.Errorf("%s: %+v", node, n)
		}
	}
	if len(w.facts) != 1 || !strings.Contains(w.facts[0], "10.0.0.4") {
		t.Errorf("evaluation saw %q", w.facts)
	}
	if s := w.state(); len(s.Intents) > 0 || len(s.Machines) != 3 || s.Machines["w-2"].Created == nil {
		t.Errorf("%+v", s)
	}

	// A second apply changes nothing on the hypervisor or on this machine.
	steps, before := len(w.h.Log()), readFile(t, w.dir.Facts())
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 unchanged", "w-2 unchanged", "w-3 unchanged")
	if did := w.effects(steps); len(did) > 0 {
		t.Errorf("it did %q", did)
	}
	if after := readFile(t, w.dir.Facts()); after != before {
		t.Error("other facts")
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestScaling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"cp": 1, "w": 2})
	w.must(w.apply())
	boots := map[string]int{}
	for _, n := range []string{"demo-cp-1", "demo-w-1", "demo-w-2"} {
		boots[n] = w.h.Boot(n)
	}
	w.scale(map[string]int{"cp": 1, "w": 4})
	wantTexts(t, outcomes(w.must(w.apply())), "cp-1 unchanged", "w-1 unchanged", "w-2 unchanged", "w-3 switched", "w-4 switched")
	w.scale(map[string]int{"cp": 1, "w": 1})
	w.decline = true
	if _, err := w.apply(); err == nil || len(w.h.Objects()) == 0 || w.h.Boot("demo-w-4") == 0 {
		t.Errorf("it was declined, and done: %v", err)
	}
	for i, e := range w.events {
		if e.Kind == event.PhaseEnd && e.Failed {
			t.Errorf("event %d: a phase failed although the user only declined: %+v", i, e)
		}
	}
	w.decline = false
	wantTexts(t, outcomes(w.must(w.apply())), "cp-1 unchanged", "w-1 unchanged", "w-2 removed", "w-3 removed", "w-4 removed")
	if diff := cmp.Diff([]string{
		"remove w-2 on default: the hive no longer contains it", "remove w-3 on default: the hive no longer contains it", "remove w-4 on default: the hive no longer contains it",
	}, w.questions); diff != "" {
		t.Error(diff)
	}
	for _, n := range []string{"demo-cp-1", "demo-w-1"} {
		if w.h.Boot(n) != boots[n] {
			t.Errorf("%s was restarted", n)
		}
	}
	if s := w.state(); len(s.Machines) != 2 || len(s.Nodes) != 2 {
		t.Errorf("%+v", s)
	}
	keys, _ := os.ReadDir(string(w.dir) + "/secrets/hosts")
	if len(keys) != 2 {
		t.Errorf("%d host keys", len(keys))
	}
	// With --on no machine is removed.
	w.scale(map[string]int{"w": 1})
	w.must(w.apply(func(o *Options) { o.Partial = true }))
	if w.h.Boot("demo-cp-1") == 0 {
		t.Error("cp-1 was removed, although only w-1 was meant")
	}
	if err := w.destroy(nil); err != nil {
		t.Fatal(err)
	}
	w.checkEmpty()
	if err := w.destroy(nil); err != nil {
		t.Error("a second time:", err)
	}
}

// checkEmpty checks that nothing is left on the hypervisor or on this machine.
func (w *world) checkEmpty() {
	w.t.Helper()
	if things := w.h.Objects(); len(things) > 0 {
		w.t.Errorf("left there: %q", things)
	}
	s := w.state()
	if len(s.Machines) > 0 || len(s.Nodes) > 0 || len(s.Intents) > 0 || s.Cluster != nil {
		w.t.Errorf("left here: %+v", s)
	}
	for _, file := range []string{"runtime.json", "known_hosts", "secrets/id_ed25519", "secrets/hosts"} {
		if durable.Exists(string(w.dir) + "/" + file) {
			w.t.Errorf("%s is left", file)
		}
	}
}

// A node is deployed when its own machine is ready, and evaluation does not wait for machines.
func TestBootOverlapsEvaluation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 3})
	w.evaluate = 400 * time.Millisecond
	w.boot["w-1"], w.boot["w-2"], w.boot["w-3"] = 0, 3*time.Second, 8*time.Second
	w.must(w.apply())
	at := func(kind event.Kind, phase event.Phase, node string) time.Time {
		for _, e := range w.events {
			if e.Kind == kind && e.Phase == phase && e.Node == node {
				return e.Time
			}
		}
		t.Fatalf("no %s of %s %s", kind, phase, node)
		return time.Time{}
	}
	if !at(event.PhaseStart, event.Evaluate, "").Before(at(event.NodeEnd, event.Boot, "w-2")) {
		t.Error("evaluation waited for machines")
	}
	if !at(event.NodeResult, event.Deploy, "w-1").Before(at(event.NodeEnd, event.Boot, "w-3")) {
		t.Error("w-1 waited for w-3")
	}
	if !at(event.PhaseEnd, event.Provision, "").After(at(event.NodeEnd, event.Boot, "w-3")) {
		t.Error("the phase was over before the last machine was ready")
	}
}

// A machine that does not become ready does not affect the others. Its error has the console log.
func TestMachineNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 3})
	w.unresponsive["w-2"] = true
	results, err := w.apply(func(o *Options) { o.BootTimeout = time.Second })
	wantTexts(t, outcomes(results), "w-1 switched", "w-2 failed", "w-3 switched")
	if err == nil || !strings.Contains(err.Error(), "w-2: its machine was started, but is not ready") || !strings.Contains(err.Error(), "Linux boots w-2") {
		t.Errorf("got %v", err)
	}
	// The machine only needs more time: the next run waits for it again.
	w.unresponsive["w-2"] = false
	steps := len(w.h.Log())
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 unchanged", "w-2 switched", "w-3 unchanged")
	if did := w.effects(steps); len(did) > 0 {
		t.Errorf("it did %q", did)
	}
}

func TestMachineNotCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.h.OnStep(failAtStep(fake.Step{Op: "ensure", Node: "w-2", Name: "disk"}))
	results, err := w.apply()
	wantTexts(t, outcomes(results), "w-1 switched", "w-2 failed")
	if err == nil || !strings.Contains(err.Error(), "w-2") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	w.h.OnStep(nil)
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 unchanged", "w-2 switched")
}

func TestResizeRecreateAndPowerCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	role := w.hive.Roles["w"]
	role.Memory = "2G"
	w.hive.Roles["w"] = role
	boot, key := w.h.Boot("demo-w-1"), w.state().Machines["w-1"].HostKey
	results, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, w.questions, "restart w-1 on default: memory 1.0 GiB → 2.0 GiB", "restart w-2 on default: memory 1.0 GiB → 2.0 GiB")
	if w.h.Boot("demo-w-1") == boot || !slices.Equal(outcomes(results), []string{"w-1 unchanged", "w-2 unchanged"}) {
		t.Errorf("%q", outcomes(results))
	}
	// A machine that is off, paused or crashed is started or resumed with a warning, without a question.
	for _, test := range []struct {
		stop        func()
		state, says string
		restarted   bool
	}{
		{func() { w.h.PowerOff("demo-w-2") }, "off", "start w-2 on default: it is off", true},
		{func() { w.h.Pause("demo-w-2") }, "paused", "resume w-2 on default: it is paused", false},
		{func() { w.h.Crash("demo-w-2") }, "crashed", "start w-2 on default: it has crashed", true},
	} {
		boot := w.h.Boot("demo-w-2")
		test.stop()
		status, err := (&machine.Manager{Hive: w.hive, Dir: w.dir, Open: w.open}).Status(t.Context(), w.state())
		if err != nil || status["w-2"].State != test.state || !status["w-2"].Off() || status["w-1"].Off() {
			t.Errorf("status %+v, %v", status["w-2"], err)
		}
		results, err := w.apply()
		if err != nil || !slices.Equal(outcomes(results), []string{"w-1 unchanged", "w-2 unchanged"}) {
			t.Errorf("%s: %q, %v", test.state, outcomes(results), err)
		}
		said := slices.ContainsFunc(w.events, func(e event.Event) bool {
			return e.Kind == event.Message && e.Level == "warning" && e.Node == "w-2" && e.Text == test.says
		})
		if w.h.State("demo-w-2") != provider.Running || (w.h.Boot("demo-w-2") != boot) != test.restarted || len(w.questions) > 0 || !said {
			t.Errorf("%s: asked %q, said %t, boot %d, then %d", test.state, w.questions, said, boot, w.h.Boot("demo-w-2"))
		}
	}
	// Another image applies only to new machines, unless --recreate is given.
	if err := os.WriteFile(w.image, []byte("another disk"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.must(w.apply())
	if len(w.questions) > 0 {
		t.Errorf("asked %q", w.questions)
	}
	before := readFile(t, w.dir.Facts())
	results, err = w.apply(func(o *Options) { o.Recreate = true })
	if err != nil {
		t.Fatal(err)
	}
	if len(w.questions) != 2 || !strings.HasPrefix(w.questions[0], "recreate w-1 on default: image ") {
		t.Errorf("asked %q", w.questions)
	}
	wantTexts(t, outcomes(results), "w-1 switched", "w-2 switched")
	if w.state().Machines["w-1"].HostKey != key || readFile(t, w.dir.Facts()) != before {
		t.Error("a recreated machine is the same node, so its facts and keys must stay")
	}
	if n := countObjects(w, "image "); n != 1 {
		t.Errorf("%d images are left", n)
	}
	if n := countObjects(w, "reservation "); n != 2 {
		t.Errorf("%d of 2 addresses are reserved for recreated machines", n)
	}
}

func countObjects(w *world, prefix string) int {
	n := 0
	for _, thing := range w.h.Objects() {
		if strings.HasPrefix(thing, prefix) {
			n++
		}
	}
	return n
}

// On a network with another DHCP server, evaluation waits for the addresses, and the facts have them.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.hive.Cluster.Network = nixeval.Network{Name: "lan", Mode: "existing"}
	w.h.AddNetwork("lan", netip.MustParsePrefix("10.9.0.0/24"))
	w.assignAddress = func(s provider.Spec) netip.Addr {
		a := netip.MustParseAddr(map[string]string{"w-1": "10.9.0.70", "w-2": "10.9.0.30"}[s.Node])
		go func() {
			time.Sleep(200 * time.Millisecond)
			w.h.AddLease("lan", provider.Lease{MAC: s.MAC, Address: a})
		}()
		return a
	}
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 switched", "w-2 switched")
	if len(w.facts) != 1 || !strings.Contains(w.facts[0], "10.9.0.70") || !strings.Contains(w.facts[0], "10.9.0.30") {
		t.Errorf("evaluation saw %q", w.facts)
	}
	w.must(w.apply())
	if err := w.destroy(nil); err != nil {
		t.Fatal(err)
	}
	if left := w.h.Objects(); !slices.Equal(left, []string{"network lan"}) {
		t.Errorf("left: %q", left)
	}
}

// If one machine gets no address, nothing is evaluated, because the facts would be wrong.
func TestDiscoveryFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.hive.Cluster.Network = nixeval.Network{Name: "lan", Mode: "existing"}
	w.h.AddNetwork("lan", netip.MustParsePrefix("10.9.0.0/24"))
	w.assignAddress = func(s provider.Spec) netip.Addr {
		if s.Node == "w-1" {
			w.h.AddLease("lan", provider.Lease{MAC: s.MAC, Address: netip.MustParseAddr("10.9.0.70")})
			return netip.MustParseAddr("10.9.0.70")
		}
		return netip.Addr{}
	}
	_, err := w.apply(func(o *Options) { o.BootTimeout = time.Second })
	var boot *machine.BootError
	if !errors.As(err, &boot) || boot.Node != "w-2" || !strings.Contains(err.Error(), "reports no address for it on network lan") || len(w.facts) > 0 {
		t.Errorf("got %v; evaluated with %q", err, w.facts)
	}
}

// A machine that nixbench has booted is reached only with its pinned host key, and the user's
// SSH configuration is not read.
func TestMachinesArePinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	o := fleet.Options{Options: remote.Options{DialContext: w.dial}, ClientKey: w.dir.ClientKey()}
	o.Resolve = func(ctx context.Context, target sshconfig.Target) (sshconfig.Config, error) {
		cfg, err := sshconfig.Resolve(ctx, target)
		if len(cfg.KnownHosts) > 0 {
			t.Errorf("ssh was asked: %+v", cfg)
		}
		return cfg, err
	}
	recorded := w.state()
	reach := func() error {
		f := fleet.New(w.hive, o)
		defer f.Close()
		h, err := f.Host(t.Context(), w.hive.Nodes[0])
		if err != nil {
			return err
		}
		_, err = h.Conn(t.Context())
		return err
	}
	if err := reach(); err == nil || !strings.Contains(err.Error(), "its machine has not been booted yet") {
		t.Errorf("not booted: %v", err)
	}
	o.MachineOf = recorded.MachineOf
	if err := reach(); err != nil {
		t.Error(err)
	}
	other, err := keys.MakeHostKey(w.dir, "other")
	if err != nil {
		t.Fatal(err)
	}
	m := recorded.Machines["w-1"]
	m.HostKey = other.Public
	o.MachineOf = (&state.State{Machines: map[string]state.Machine{"w-1": m}}).MachineOf
	var changed *hostkeys.ChangedError
	if err := reach(); !errors.As(err, &changed) {
		t.Errorf("another key: %v", err)
	}
}

// A preview writes nothing, and evaluates with the facts as they would be after an apply.
func TestPreviewOfMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	preview := func() []string {
		var out []string
		_, err := w.session(t.Context(), "plan", func(d *Deployer) error {
			all, err := d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
			for _, p := range all.Nodes {
				text := p.Node + " " + p.Action
				if p.Machine != nil {
					text += ", " + string(p.Machine.Action) + " " + p.Machine.Address.String()
				}
				out = append(out, text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	wantTexts(t, preview(), "w-1 first deployment, create 10.0.0.2", "w-2 first deployment, create 10.0.0.3")
	if s := w.state(); s.Cluster != nil || len(s.Machines) > 0 || durable.Exists(w.dir.Facts()) || durable.Exists(w.dir.ClientKey()) || len(w.h.Objects()) > 0 {
		t.Errorf("it left something: %+v", s)
	}
	w.must(w.apply())
	w.h.PowerOff("demo-w-2")
	w.scale(map[string]int{"w": 2, "x": 0})
	wantTexts(t, preview(), "w-1 unchanged, keep 10.0.0.2", "w-2 not running, start 10.0.0.3")
	w.scale(map[string]int{"w": 1})
	wantTexts(t, preview(), "w-1 unchanged, keep 10.0.0.2", "w-2 removed, remove 10.0.0.3")
	if !slices.ContainsFunc(w.events, func(e event.Event) bool { return e.Text == "1 node would be removed, 0 of 1 node would change" }) {
		t.Error("no event has the summary with the removal")
	}
}

// A destroy of one machine keeps the others, and the next apply creates the machine again.
func TestDestroyOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	key := w.state().Machines["w-2"].HostKey
	if err := w.destroy(func(all []nixeval.Node) ([]nixeval.Node, error) { return all[1:], nil }); err != nil {
		t.Fatal(err)
	}
	r, err := facts.Load(w.dir.Facts())
	if err != nil || len(r.Nodes) != 1 || w.h.Boot("demo-w-1") == 0 || w.h.Boot("demo-w-2") != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	w.must(w.apply())
	if m := w.state().Machines["w-2"]; m.HostKey == key || m.Address.String() != "10.0.0.3" {
		t.Errorf("%+v", m)
	}
	// Machines are removed even if the hive no longer has their roles.
	w.hive.Roles, w.hive.Nodes, w.hive.Units = nil, nil, nil
	if err := w.destroy(nil); err != nil {
		t.Fatal(err)
	}
	w.checkEmpty()
}

// The secrets of a cluster are removed with its last node, whether nixbench boots that node or not.
func TestSecretsOutliveMachines(t *testing.T) {
	t.Parallel()
	host := "192.0.2.1"
	bare := func(hive *nixeval.Hive) { hive.Unit("cp").Deployment.TargetHosts = nixeval.TargetHosts{host} }
	for name, test := range map[string]struct {
		others func(*nixeval.Hive)
		known  bool // the node is only in the state
		keep   bool
	}{
		"no other node":                 {others: func(*nixeval.Hive) {}},
		"a named node":                  {others: func(h *nixeval.Hive) { h.Nodes[0].Role = "" }, keep: true},
		"a role of machines that exist": {others: bare, keep: true},
		"one that the hive dropped":     {others: func(*nixeval.Hive) {}, known: true, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int{"cp": 1, "w": 1})
			test.others(w.hive)
			w.must(w.session(t.Context(), "apply", func(d *Deployer) error {
				return d.Apply(t.Context(), w.hive, w.hive.Nodes[1:], Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}}, BootTimeout: 10 * time.Second, Partial: true})
			}))
			vault := filepath.Join(w.dir.Vault(), "cluster-ca.json")
			if err := os.MkdirAll(w.dir.Vault(), 0o700); err != nil {
				t.Fatal(err)
			}
			access := w.dir.AccessFile(worldAccessFile)
			for _, file := range []string{vault, access} {
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.known {
				w.must(w.session(t.Context(), "apply", func(d *Deployer) error {
					return d.Store.Update(func(s *state.State) error { s.Confirm("old-cp", state.Deployment{Path: "/p"}); return nil })
				}))
			}
			if err := w.destroy(nil); err != nil {
				t.Fatal(err)
			}
			if durable.Exists(vault) != test.keep || durable.Exists(access) != test.keep {
				t.Errorf("the authority is there: %v, the access file: %v, want %v", durable.Exists(vault), durable.Exists(access), test.keep)
			}
			if w.state().Cluster != nil {
				t.Error("the cluster's machines are remembered")
			}
		})
	}
}

// A machine that has our metadata but is not in the state is shown, and removed.
func TestOrphans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	forget := func() {
		_, err := w.session(t.Context(), "forget", func(d *Deployer) error {
			return d.Store.Update(func(s *state.State) error { delete(s.Machines, "w-2"); return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	forget()
	w.scale(map[string]int{"w": 1})
	w.must(w.apply())
	if !slices.Equal(w.questions, []string{"remove w-2 on default: left by an interrupted run"}) || countObjects(w, "domain ") != 1 {
		t.Errorf("asked %q; there is %q", w.questions, w.h.Objects())
	}
	w.scale(map[string]int{"w": 2})
	w.must(w.apply())
	forget()
	if err := w.destroy(nil); err != nil {
		t.Fatal(err)
	}
	w.checkEmpty()
}

// If the hive's description of a hypervisor changes, its machines are neither lost nor recreated.
func TestHypervisorChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.hive.Cluster.Hypervisors["default"] = nixeval.Hypervisor{URI: "fake:///", Pool: "p"}
	w.must(w.apply())
	before, boot := w.h.Objects(), w.h.Boot("demo-w-1")
	untouched := func() {
		t.Helper()
		w.hive.Cluster.Hypervisors["default"] = nixeval.Hypervisor{URI: "fake:///", Pool: "p"}
		if diff := cmp.Diff(before, w.h.Objects()); diff != "" || w.h.Boot("demo-w-1") != boot {
			t.Errorf("it was touched: %s", diff)
		}
		if s := w.state(); s.Machines["w-1"].Created == nil || s.Nodes["w-1"].LastConfirmed == nil {
			t.Errorf("the machine is not in the state any more: %+v", s)
		}
		if len(w.questions) > 0 {
			t.Errorf("asked %q", w.questions)
		}
	}

	w.hive.Cluster.Hypervisors["default"] = nixeval.Hypervisor{URI: "fake:///", Pool: "q"}
	_, err := w.apply()
	var bad *changes.PlanError
	if !errors.As(err, &bad) || !strings.Contains(bad.Text, "pool p") || bad.Fix == "" {
		t.Errorf("another pool: %v", err)
	}
	untouched()

	// If the name refers to another host and a role is renamed at once, the old machine is not lost.
	real := w.h
	w.scale(map[string]int{"v": 1})
	w.h = fake.New()
	w.hive.Cluster.Hypervisors["default"] = nixeval.Hypervisor{URI: "fake://elsewhere/", Pool: "p"}
	_, err = w.apply()
	if !errors.As(err, &bad) || !strings.Contains(bad.Text, "w-1: its machine is on hypervisor default at ") || !strings.Contains(bad.Text, "the hive sets fake://elsewhere/") {
		t.Errorf("another host: %v", err)
	}
	w.h = real
	untouched()
}

// A network with machines cannot change; a network that the hive names meanwhile is not recorded.
func TestNetworkChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	before, facts := *w.state().Cluster, readFile(t, w.dir.Facts())
	for want, change := range map[string]func(*nixeval.Network){
		"other (nat, 10.0.0.0/24, internal)":    func(n *nixeval.Network) { n.Name = "other" },
		"net (isolated, 10.0.0.0/24, internal)": func(n *nixeval.Network) { n.Mode = "isolated" },
		"net (nat, 10.0.0.0/25, internal)":      func(n *nixeval.Network) { n.CIDR = "10.0.0.0/25" },
		"net (nat, 10.0.0.0/24, lab)":           func(n *nixeval.Network) { n.Domain = "lab" },
	} {
		w.scale(map[string]int{"w": 2})
		change(&w.hive.Cluster.Network)
		_, err := w.apply()
		var bad *changes.PlanError
		if !errors.As(err, &bad) || !strings.Contains(bad.Text, "are on network net (nat, 10.0.0.0/24, internal), and the hive sets network "+want) || bad.Fix == "" {
			t.Errorf("%s: %v", want, err)
		}
		if diff := cmp.Diff(before, *w.state().Cluster, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || readFile(t, w.dir.Facts()) != facts {
			t.Errorf("%s: it was written down: %s", want, diff)
		}
	}
	w.scale(map[string]int{"w": 2})
	w.must(w.apply())
}

// After Ctrl-C, destroy reports the interruption and not the error of each call.
func TestDestroyInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	w.h.OnStep(func(ctx context.Context, s fake.Step) error {
		if s.Op == "remove" {
			stop(errors.New("interrupted"))
			return ctx.Err()
		}
		return nil
	})
	if err := w.destroyIn(ctx, nil); err == nil || strings.Contains(err.Error(), "canceled") || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
	w.h.OnStep(nil)
	if err := w.destroy(nil); err != nil {
		t.Error(err)
	}
	w.checkEmpty()
}
