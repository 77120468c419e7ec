package deploy

import (
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// `apply --reboot` switches the nodes, reboots those that have not booted the new system, and uploads
// the keys that the reboot has deleted. A node that fails does not prevent the reboot of another one.
func TestApplyReboot(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	hive := func(text string) {
		s.writeHive(`m1 = { imports = [ (which "` + text + `") ]; deployment.keys.k.text = "k"; };
			m2 = { imports = [ (which "` + text + `") ]; deployment.keys.k = { text = "k"; uploadAt = "post-activation"; }; };`)
	}
	hive("one")
	s.run(0, "apply")
	before := map[string]string{"m1": s.l.BootID(t, "m1"), "m2": s.l.BootID(t, "m2")}

	hive("two")
	got := s.run(0, "apply", "--reboot")
	s.says(got, "2 rebooted", "back after")
	s.checkWhich("m1=two", "m2=two")
	for node, boot := range before {
		if s.l.BootID(t, node) == boot {
			t.Errorf("%s was not rebooted", node)
		}
		if got := s.runOn(node, "readlink /run/booted-system | grep -c nixos-system; cat /run/keys/k"); got != "1\nk" {
			t.Errorf("%s: %q", node, got)
		}
		before[node] = s.l.BootID(t, node)
	}
	s.run(0, "status", "--check")

	s.says(s.run(0, "apply", "--reboot"), "2 unchanged")
	s.says(s.run(0, "apply", "boot", "--reboot"), "2 unchanged")
	for node, boot := range before {
		if s.l.BootID(t, node) != boot {
			t.Errorf("%s was rebooted although it had booted the system", node)
		}
	}

	hive("three")
	s.runOn("m2", "systemd-run --quiet --on-active=45s --timer-property=AccuracySec=1s systemctl start ssh; systemctl stop ssh")
	s.says(s.run(6, "apply", "--reboot"), "error: m2: ", "1 rebooted, 1 failed")
	s.waitFor(90*time.Second, "ssh on m2", func() bool { return s.l.SSH(t.Context(), "m2", "true").Run() == nil })
	s.checkWhich("m1=three", "m2=two")
	s.checkNothingLeft("m1", "m2")
}
