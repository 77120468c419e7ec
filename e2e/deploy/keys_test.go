package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Keys are written to their paths with their modes and owners, and are found nowhere except there:
// not in process lists, stores, logs, records or output.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1, "--volume", "/nix"))
	secrets := []string{"correct-horse-text", "battery-staple-file", "tr0ub4dor-command", "late-secret-text"}
	const marker = "not-secret-at-all"
	s.writeFile("key-file", secrets[1])
	s.writeFile("key-source", secrets[2])
	const keys = `m1 = {
    imports = [ (which "not-secret-at-all") ];
    users.users.bob = { isSystemUser = true; group = "bobs"; };
    users.groups.bobs = { };
    deployment.keys = {
      text = { text = "correct-horse-text"; user = "bob"; group = "bobs"; permissions = "0440"; };
      file = { keyFile = ./key-file; restartUnits = [ "reader.service" ]; };
      command = { keyCommand = [ "sh" "-c" "sleep 1; cat key-source" ]; destDir = "/var/keys"; permissions = "0400"; };
      late = { text = "late-secret-text"; uploadAt = "post-activation"; user = "bob"; };
    };
    systemd.services.reader = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = { ExecStartPre = "/bin/cp /run/keys/file /run/read"; ExecStart = "/bin/sleep infinity"; };
    };
    systemd.services.follower = {
      after = [ "text-key.service" ]; bindsTo = [ "text-key.service" ];
      serviceConfig.ExecStart = "/bin/sleep infinity";
      script = null;
    };
  };`
	s.writeHive(strings.Replace(keys, "      script = null;\n", "", 1))
	before := fixture.StorePaths()

	// No key is in the command line or environment of a process during the run.
	p := s.start("apply")
	seen := map[string]bool{}
	done := make(chan runResult, 1)
	go func() { done <- p.end() }()
	var got runResult
	for running := true; running; {
		select {
		case got = <-done:
			running = false
		case <-time.After(10 * time.Millisecond):
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the lab's machines' processes are there, too
			environs, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, f := range append(lines, environs...) {
				text, _ := os.ReadFile(f)
				for _, secret := range append(secrets, "key-source") {
					if bytes.Contains(text, []byte(secret)) {
						seen[secret] = true
					}
				}
			}
		}
	}
	if got.code != 0 {
		t.Fatalf("exit %d\n%s", got.code, got.err)
	}
	if !seen["key-source"] {
		t.Error("the search of the process list does not see the keyCommand itself")
	}
	for _, secret := range secrets {
		if seen[secret] {
			t.Errorf("%s was in the process list", secret)
		}
	}
	stat := s.runOn("m1", "cd /run/keys && stat -c '%n %a %U %G' text file late /var/keys/command && cat text file late /var/keys/command")
	if want := "text 440 bob bobs\nfile 600 root root\nlate 600 bob root\n/var/keys/command 400 root root\n" +
		secrets[0] + secrets[1] + secrets[3] + secrets[2]; stat != want {
		t.Errorf("keys:\n%s\nwant\n%s", stat, want)
	}

	// On this machine: the new store paths, the closure of the system, and the state folder.
	fresh := slices.DeleteFunc(fixture.StorePaths(), func(p string) bool { return slices.Contains(before, p) })
	query := exec.Command("nix-store", "-qR", s.readState().Nodes["m1"].Good.Path)
	query.Env = s.env
	closure, err := query.Output()
	if err != nil {
		t.Fatal(err)
	}
	system := strings.Fields(string(closure))
	where := slices.Concat(fresh, system, []string{filepath.Join(s.dir, ".nixbench")})
	for _, secret := range secrets {
		if found := fixture.FilesWith(t, []string{secret}, where...); len(found) > 0 {
			t.Errorf("%s is in %v", secret, found)
		}
	}
	if len(fixture.FilesWith(t, []string{"m1"}, filepath.Join(s.dir, ".nixbench"))) < 3 {
		t.Error("the search of the state finds nothing")
	}
	if len(fixture.FilesWith(t, []string{marker}, system...)) == 0 {
		t.Error("the search of the store does not find what is there")
	}
	// On the node: the whole store, logs and records.
	const search = `grep -rlF -e %s /nix/store /var/log /var/lib/nixbench /etc 2>/dev/null; journalctl -q --no-pager | grep -cF -e %s`
	for _, secret := range secrets {
		if found := s.runOn("m1", strings.ReplaceAll(search, "%s", secret)+" || :"); found != "0" {
			t.Errorf("on the node %s is in %s", secret, found)
		}
	}
	if found := s.runOn("m1", strings.ReplaceAll(search, "%s", marker)+" || :"); !strings.Contains(found, "/nix/store/") {
		t.Errorf("the search on the node does not find what is there: %s", found)
	}
	s.says(got, "1 switched")
	for _, secret := range secrets {
		s.saysNot(got, secret)
	}

	// A service that is bound to a key's unit stops and starts with the key.
	s.runOn("m1", "systemctl start follower; systemctl is-active text-key follower")
	s.runOn("m1", "rm /run/keys/text")
	until := func(want string) {
		t.Helper()
		s.waitFor(15*time.Second, want, func() bool {
			return strings.Join(strings.Fields(s.runOn("m1", "systemctl is-active text-key follower || :")), " ") == want
		})
	}
	until("inactive inactive")
	s.says(s.run(0, "upload-keys"), "keys: uploaded text", "1 with new keys")
	until("active active")

	// Unchanged keys, a changed key, and removed keys.
	s.says(s.run(0, "apply"), "1 unchanged")
	s.says(s.run(0, "upload-keys"), "keys are unchanged")
	s.writeFile("key-file", "battery-staple-changed")
	s.says(s.run(0, "apply"), "uploaded file; restarted reader.service")
	if got := s.runOn("m1", "cat /run/keys/file /run/read"); got != "battery-staple-changedbattery-staple-changed" {
		t.Errorf("the key, and what a unit has read: %q", got)
	}

	// A unit has read another key than the one on the disk, as after a run that was killed before it restarted the unit.
	s.runOn("m1", "echo bad > /run/keys/file; systemctl restart reader; printf battery-staple-changed > /run/keys/file")
	s.says(s.run(0, "apply"), "restarted reader.service")
	s.says(s.run(0, "apply"), "1 unchanged")
	// A switch restarts the unit, and a rollback restarts it with the previous key.
	s.writeFile("key-file", "battery-staple-again")
	s.writeHive(strings.NewReplacer("      script = null;\n", "", "not-secret-at-all", "again").Replace(keys))
	s.run(0, "apply")
	if got := s.runOn("m1", "cat /run/read"); got != "battery-staple-again" {
		t.Errorf("after a switch, the unit has read %q", got)
	}
	s.writeFile("key-file", "battery-staple-bad")
	s.writeHive(strings.NewReplacer("      script = null;\n", `  preStart = "exit 1"; wantedBy = [ "multi-user.target" ];`, "not-secret-at-all", "fails").Replace(keys))
	s.run(8, "apply")
	if got := s.runOn("m1", "cat /run/keys/file /run/read"); got != "battery-staple-againbattery-staple-again" {
		t.Errorf("after a rollback, the key, and what the unit has read: %q", got)
	}
	s.writeHive(`m1 = which "no keys";`)
	s.run(0, "apply")
	if got := s.runOn("m1", "ls /run/keys /var/keys"); strings.Contains(got, "text") || strings.Contains(got, "command") {
		t.Errorf("dropped keys are still there: %s", got)
	}

	// A node whose keyCommand fails is not switched.
	s.writeHive(`m1 = { imports = [ (which "bad key") ]; deployment.keys.k.keyCommand = [ "sh" "-c" "echo no such secret >&2; exit 1" ]; };`)
	s.says(s.run(7, "apply"), "error: m1", "keyCommand: sh failed")
	s.checkWhich("m1=no keys")
	s.checkNothingLeft("m1")
}

// When many keys are replaced at the same time, the units of the keys stay active, so that the units which are bound to
// them are not restarted.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1, "--volume", "/nix")) // tail does not trust an overlay with inotify
	write := func(text string) {
		s.writeHive(`m1.deployment.keys = builtins.listToAttrs (builtins.genList (i: { name = "k${toString i}"; value.text = "` + text + `"; }) 20);`)
	}
	write("old")
	s.run(0, "apply")
	s.waitFor(15*time.Second, "20 active units", func() bool {
		return s.runOn("m1", "systemctl list-units --no-legend --plain --state=active 'k*-key.service' | wc -l") == "20"
	})
	const starts = "systemctl show -P ActiveEnterTimestampMonotonic 'k*-key.service' | sort"
	before := s.runOn("m1", starts)
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		write(text)
		s.says(s.run(0, "upload-keys"), "1 with new keys")
	}
	time.Sleep(time.Second) // a restart would begin at once
	if after := s.runOn("m1", starts); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	s.runOn("m1", "rm /run/keys/k7")
	s.waitFor(15*time.Second, "the unit of the removed key waits", func() bool {
		return strings.TrimSpace(s.runOn("m1", "systemctl is-active k7-key k8-key || :")) == "inactive\nactive"
	})
}
