package activate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

func testFailures(t *testing.T, b *bench) {
	b.l.Run(t, "root@"+b.name, "ln -sfn bash /bin/sh") // as on NixOS
	b.goTo("one")
	for name, want := range map[string]struct {
		exit int
		text string
	}{
		"broken":  {4, "unit broken.service failed; the node rolled back to "},
		"refuses": {1, "a pre-switch check of the new system failed, and nothing was changed (exit 1)\n  not today\n"},
		"script":  {2, "the activation script failed (exit 2)"},
		"loader":  {1, "the boot loader could not be installed"},
	} {
		res, err := b.fails(b.request(name, Switch))
		if res.Exit != want.exit || res.RolledBack() != (name != "refuses") || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %+v\n%v", name, res, err)
		}
		if name == "broken" && (!slices.Equal(res.Broken, []string{"broken.service"}) || !strings.Contains(err.Error(), "the disk is on fire")) {
			t.Errorf("%v %v", res.Broken, err)
		}
		b.is("one", "one")
		if got := b.l.Run(t, b.name, "cat /etc/which; systemctl is-system-running || :"); got != "onerunning" && got != "one\nrunning" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// A unit of each user who is logged in.
	running := func() string {
		return b.l.Run(t, "root@"+b.name, "XDG_RUNTIME_DIR=/run/user/0 systemctl --user show -p SubState --value notes.service")
	}
	b.goTo("notes")
	if got := running(); got != "running" {
		t.Errorf("the user's service is %s", got)
	}
	res, err := b.fails(b.request("badNotes", Switch))
	if !res.RolledBack() || res.Exit != 4 || !strings.Contains(err.Error(), "the activation of these users failed: deploy, root (exit 4)") {
		t.Errorf("%+v\n%v", res, err)
	}
	if got := running(); got != "running" {
		t.Errorf("the user's service is %s after the rollback", got)
	}
	b.goTo("one")

	// Without a rollback the failed unit remains, and the next switch does not fail because of it.
	r := b.request("broken", Switch)
	r.Confirm = 0
	res, _ = b.fails(r)
	if res.RolledBack() || res.Exit != 4 {
		t.Errorf("%+v", res)
	}
	b.is("broken", "broken")
	res = b.goTo("stillBroken")
	if !slices.Equal(res.AlreadyFailing, []string{"broken.service"}) || len(res.Broken) > 0 || res.Exit != 4 {
		t.Errorf("already failing %q, broken %q, exit %d", res.AlreadyFailing, res.Broken, res.Exit)
	}
	b.is("stillBroken", "stillBroken")
	res, _ = b.fails(b.request("alsoBroken", Switch))
	if !slices.Equal(res.Broken, []string{"worse.service"}) || !slices.Equal(res.AlreadyFailing, []string{"broken.service"}) {
		t.Errorf("%+v", res)
	}
	b.is("stillBroken", "stillBroken")

	// Another process is switching.
	b.l.Run(t, "root@"+b.name, "systemd-run -q --unit=other flock /run/nixos/switch-to-configuration.lock sleep 60")
	_, err = b.fails(b.request("one", Switch))
	if !strings.Contains(err.Error(), "another switch is running") {
		t.Error(err)
	}
	b.l.Run(t, "root@"+b.name, "systemctl stop other")
	r = b.request("one", Switch)
	r.Confirm = 0
	b.must(r)
	b.is("one", "one")
}

// With one Activator for many nodes, a failing node does not delay the others.
func TestLabTogether(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	paths := build(t)
	l := lab.Start(t, 3)
	a := &Activator{}
	var benches []*bench
	for _, m := range l.Machines {
		b := newBench(t, l, m.Name, "root", paths)
		b.a = a
		benches = append(benches, b)
	}
	all := func(systems ...string) (took []time.Duration, errs []error) {
		took, errs = make([]time.Duration, len(benches)), make([]error, len(benches))
		var group sync.WaitGroup
		for i, b := range benches {
			group.Go(func() {
				begin := time.Now()
				_, errs[i] = a.Activate(t.Context(), b.name, b.host, b.request(systems[i], Switch))
				took[i] = time.Since(begin)
			})
		}
		group.Wait()
		return took, errs
	}
	if took, errs := all("one", "one", "one"); errors.Join(errs...) != nil {
		t.Fatal(errs)
	} else {
		t.Logf("three machines in %v", took)
	}
	took, errs := all("hangs", "two", "two")
	if errs[0] == nil || errs[1] != nil || errs[2] != nil || max(took[1], took[2]) > took[0]-2*time.Second {
		t.Errorf("%v %v", took, errs)
	}
	for i, system := range []string{"one", "two", "two"} {
		benches[i].is(system, system)
	}
}
