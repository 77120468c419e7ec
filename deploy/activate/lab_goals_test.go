package activate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func testGoals(t *testing.T, b *bench) {
	n := b.inspect()
	if !n.NixOS || n.Current != "" || n.Generation != 0 || n.Last != nil {
		t.Errorf("a new machine says %+v", n)
	}
	dry := b.must(b.request("one", DryActivate))
	if !slices.ContainsFunc(dry.Dry, func(s string) bool {
		return strings.HasPrefix(s, "restart ") && strings.Contains(s, "nix-daemon.service")
	}) {
		t.Errorf("dry: %+v", dry.Dry)
	}
	if got := b.l.Run(t, b.name, "ls -d /run/nixbench /var/lib/nixbench /nix/var/nix/gcroots/nixbench /nix/var/nix/profiles/system* 2>/dev/null || :"); got != "" {
		t.Errorf("a dry activation left %s", got)
	}

	hands := b.host.Handshakes()
	res := b.goTo("one")
	if !res.Changed || res.Outcome != Committed || res.Exit != 0 || res.After.Generation != 1 {
		t.Errorf("%+v", res)
	}
	if got := b.host.Handshakes() - hands; got != 1 {
		t.Errorf("%d handshakes to confirm a switch that starts no service that keeps running", got)
	}
	if log := b.rec.log(); !strings.Contains(log, "new units were started: steady.service") {
		t.Errorf("the log is %q", log)
	}
	b.is("one", "one")
	if res := b.goTo("one"); res.Changed {
		t.Error("switched to what it is")
	}
	b.goTo("two")
	b.is("two", "two")
	b.must(b.request("three", Test))
	b.is("three", "two")
	res = b.must(b.request("one", Boot))
	b.is("three", "one")
	if res.After.Generation != 3 {
		t.Errorf("generation %d", res.After.Generation)
	}
	// A running system only has to be made permanent.
	if res := b.goTo("three"); res.Outcome != BootDefault || strings.Contains(strings.Join(res.Log, ""), "activating") {
		t.Errorf("%+v", res)
	}
	b.is("three", "three")

	r := b.request("two", Switch)
	r.Specialisation = "quiet"
	b.must(r)
	if got := b.l.Run(t, b.name, "cat /etc/quiet /boot/nixbench-default"); got != "yes"+b.paths["two"] && got != "yes\n"+b.paths["two"] {
		t.Errorf("specialisation: %q", got)
	}
	r.Run += "x"
	if res := b.must(r); res.Changed {
		t.Error("switched to the specialisation twice")
	}
	r.Specialisation = "loud"
	_, err := b.a.Activate(t.Context(), b.name, b.host, r)
	if err == nil || !strings.Contains(err.Error(), "no specialisation loud: it has quiet") {
		t.Errorf("%v", err)
	}

	// Generations.
	r = b.request("one", Switch)
	r.Generation = 1
	if res, err := b.a.Activate(t.Context(), b.name, b.host, r); err != nil || res.After.Generation != 1 {
		t.Errorf("%v %+v", err, res)
	}
	b.is("one", "one")
	r = b.request("two", Switch)
	r.Generation = 99
	if _, err := b.a.Activate(t.Context(), b.name, b.host, r); err == nil || !strings.Contains(err.Error(), "no generation 99") {
		t.Errorf("%v", err)
	}

	// A system that is not in Known may be replaced if nixbench has deployed it, and otherwise not.
	r = b.request("two", Switch)
	r.ReplaceUnknown = false
	b.must(r)
	b.l.Run(t, b.name, b.paths["slow"]+"/bin/switch-to-configuration test")
	r = b.request("one", Switch)
	r.ReplaceUnknown = false
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if unknown := (*UnknownProfileError)(nil); !errors.As(err, &unknown) || unknown.Path != b.paths["slow"] {
		t.Errorf("%v", err)
	}
	r.Known = []string{b.paths["slow"]}
	b.must(r)

	// A new init needs a reboot.
	b.goTo("one")
	res = b.must(b.request("init", Switch))
	if res.Outcome != BootDefault || res.Exit != 100 || !res.RebootNeeded() {
		t.Errorf("%v, exit %d", res.Outcome, res.Exit)
	}
	b.is("one", "init")
	b.goTo("one")
	b.is("one", "one")

	// Another kernel.
	res = b.must(b.request("kernel", Boot))
	n, err = b.a.Reboot(t.Context(), b.name, b.host, time.Minute)
	if err != nil || n.Booted != b.paths["kernel"] || n.RebootNeeded() {
		t.Errorf("%v %+v", err, n)
	}
	if res := b.goTo("one"); !res.RebootNeeded() {
		t.Errorf("another kernel needs no reboot? %+v", res.After)
	}

	// The node's own nixos-rebuild.
	program, err := os.ReadFile("testdata/bin/nixos-rebuild")
	if err != nil {
		t.Fatal(err)
	}
	b.l.Run(t, b.name, "cat >/usr/bin/nixos-rebuild <<'END'\n"+strings.ReplaceAll(string(program), "@root@", "")+"END\nchmod +x /usr/bin/nixos-rebuild")
	r = b.request("three", Switch)
	r.Activator = NixosRebuild
	if res := b.must(r); res.Outcome != Committed || !slices.Contains(res.Log, "building the system configuration...") {
		t.Errorf("%v %q", res.Outcome, res.Log)
	}
	b.is("three", "three")
	r = b.request("broken", Switch)
	r.Activator = NixosRebuild
	if res, _ := b.fails(r); !slices.Equal(res.Broken, []string{"broken.service"}) || !res.RolledBack() {
		t.Errorf("%v %v", res.Outcome, res.Broken)
	}
	b.is("three", "three")
	b.l.Run(t, b.name, "rm /usr/bin/nixos-rebuild")

	// Paths that are not a system, or not in the store.
	r = b.request("one", Switch)
	r.Path = "/nix/store/00000000000000000000000000000000-nothing"
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if not := (*NotSystemError)(nil); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
	r = b.request("two", Switch)
	r.Activator = NixosRebuild
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if err == nil || !strings.Contains(err.Error(), "no nixos-rebuild with --store-path") {
		t.Errorf("%v", err)
	}
}
