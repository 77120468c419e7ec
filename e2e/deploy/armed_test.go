package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A node rolls back by itself when its new system cannot be confirmed: because logins are
// impossible, the network is down, the activation hangs, or the node reboots. Other nodes are
// not affected.
func TestArmedRollback(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 5))
	base := map[string]string{"m1": `which "one"`, "m2": `which "one"`, "m3": `which "one"`, "m4": `which "one"`, "m5": `which "one"`}
	hive := func(nodes map[string]string) {
		t.Helper()
		var b strings.Builder
		for name, module := range base {
			if nodes[name] != "" {
				module = nodes[name]
			}
			b.WriteString("  " + name + " = " + module + ";\n")
		}
		s.writeHive(b.String())
	}
	hive(nil)
	first := s.run(0, "apply")

	hive(map[string]string{
		"m1": `{ lib, ... }: { imports = [ (which "locked out") ]; networking.firewall.enable = lib.mkForce true; }`,
		"m2": `{ imports = [ (which "cut") ]; systemd.services.cut = once "/usr/sbin/ip link set eth0 down" // { postStop = "/usr/sbin/ip link set eth0 up"; }; }`,
		"m3": `{ imports = [ (which "closed") ]; systemd.services.closed = once "systemctl stop ssh systemd-networkd; pkill sshd-session; true" // { postStop = "systemctl start systemd-networkd ssh"; }; }`,
		"m4": `{ imports = [ (which "hangs") ]; system.activationScripts.hang = "echo hanging around; sleep 1000"; }`,
		"m5": `which "two"`,
	})
	got := s.run(8, "apply", "--timeout", "confirm=10s")
	s.says(got, "1 switched, 4 rolled-back",
		"error: m1: ", "error: m2: ", "error: m3: ", "no client could log in to confirm it within 10s; the node rolled back to ", " automatically",
		"error: m4: ", "no progress for 10s", "hanging around")
	// The duration of the first apply shows how fast this machine is at present.
	if limit := 20*time.Second + 2*first.took; got.took > limit {
		t.Errorf("the report came after %v, for a timeout of 10 s; at most %v", got.took, limit)
	}
	for _, h := range s.findEvents(func(h runEvent) bool { return h.Event == "node-result" }) {
		t.Logf("%s: %s (after %v)", h.Node, h.Text, h.Time.Sub(s.events()[0].Time).Round(time.Millisecond))
	}
	s.checkWhich("m1=one", "m2=one", "m3=one", "m4=one", "m5=two")
	s.checkNothingLeft("m1", "m2", "m3", "m4", "m5")

	// The node also boots the old system.
	s.l.PowerCut(t, "m1")
	s.l.PowerOn(t, "m1")
	s.checkWhich("m1=one")

	// m1 reboots while it waits for confirmation, m2 is powered off during the switch.
	hive(map[string]string{
		"m1": `{ imports = [ (which "locked out") ]; systemd.services.reboots = once "systemctl --no-block reboot -f"; }`,
		"m2": `{ imports = [ (which "slow") ]; system.activationScripts.slow = "sleep 4"; }`,
		"m5": `which "three"`,
	})
	p := s.start("apply", "--timeout", "confirm=10s")
	s.waitFor(30*time.Second, "m2 to switch", func() bool {
		return len(s.findEvents(func(h runEvent) bool { return h.Event == "node-log" && h.Phase == "activate" && h.Node == "m2" })) > 0
	})
	s.l.PowerCut(t, "m2")
	s.l.Virsh(t, "start", "m2")
	got = p.end()
	if got.code != 8 {
		t.Errorf("exit %d, want 8", got.code)
	}
	s.says(got, "error: m1: ", "error: m2: ", "the node rebooted before it was confirmed", "2 rolled-back")
	s.l.WaitReady(t, "m1", "")
	s.l.WaitReady(t, "m2", "")
	s.checkWhich("m1=one", "m2=one", "m5=three")

	hive(map[string]string{"m1": `which "four"`, "m2": `which "four"`, "m5": `which "four"`})
	s.run(0, "apply")
	s.checkWhich("m1=four", "m2=four", "m3=one", "m4=one", "m5=four")
	s.checkNothingLeft("m1", "m2", "m3", "m4", "m5")
}

// A machine without an earlier system cannot roll back. The error reports this, soon after the
// timeout.
func TestFirstSwitchLocksOut(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	s.writeHive(`m1 = { lib, ... }: { imports = [ (which "locked out") ]; networking.firewall.enable = lib.mkForce true; };`)
	got := s.run(8, "apply", "--timeout", "confirm=5s")
	s.says(got, "error: m1: ", "the result of the switch to ")
	s.saysNot(got, "unless it is confirmed")
	if got.took > 45*time.Second {
		t.Errorf("the error came after %v, want at most 45s", got.took)
	}
	t.Log(got.err)
}
