package activate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// TestShellcheck checks the script as it is sent to nodes, and that the check fails for a script with an error.
func TestShellcheck(t *testing.T) {
	if problems := fixture.Shellcheck(t, nodeScript, "--shell=bash", "-"); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}
	if problems := fixture.Shellcheck(t, nodeScript+"\nls $1\n", "--shell=bash", "-"); !strings.Contains(problems, "SC2086") {
		t.Errorf("a script with an unquoted word: %q", problems)
	}
}

// Tests the node's script with stand-ins for systemd, Nix and the systems. lab_*_test.go test it
// on machines with the real programs.
func TestScript(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *standIn){
		"switch": func(t *testing.T, n *standIn) {
			res, err := n.activate(n.request())
			if err != nil || res.Outcome != Committed || res.Exit != 0 || res.After.Generation != 2 {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new test", "new boot")
			if n.server.Handshakes() != 2 {
				t.Errorf("%d handshakes, want one to work with and one to confirm", n.server.Handshakes())
			}
		},
		"switch that starts services": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 0 active running`)
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			if n.server.Handshakes() != 3 {
				t.Errorf("%d handshakes, want one to work with and two to confirm", n.server.Handshakes())
			}
		},
		"services are watched without a program": func(t *testing.T, n *standIn) {
			n.mkdir("run/systemd/units")
			n.onNew(`only web.service 500 0 active running`)
			// find is called before the switch, before the watch and after it, but not while nothing starts.
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed || n.count("find") != 3 {
				t.Errorf("%+v, %v: find was called %d times", res, err, n.count("find"))
			}
		},
		"a service is started during the watch": func(t *testing.T, n *standIn) {
			n.mkdir("run/systemd/units")
			n.onNew(`restarts() { only web.service 700 1 active running; touch ` + n.root + `/run/systemd/units; }
only web.service 500 0 active running; whileWatched web.service restarts`)
			r := n.request()
			r.SettleTime = 2 * time.Second
			// The script looks again, once, after the start; twice if the clock of the file system has not moved on since.
			if res, err := n.activate(r); err != nil || res.Outcome != Committed || n.count("find") < 4 || n.count("find") > 5 {
				t.Errorf("%+v, %v: find was called %d times:\n%s", res, err, n.count("find"), n.read("world/asked"))
			}
		},
		"systemd does not answer": func(t *testing.T, n *standIn) {
			n.write("world/hangs", "")
			defer os.Remove(filepath.Join(n.world, "hangs"))
			begin := time.Now()
			got, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
			if took := time.Since(begin); err != nil || got.System != "" || got.Current != n.oldPath || took > 20*time.Second {
				t.Errorf("%+v, %v after %v", got, err, took)
			}
		},
		"engine of the running system": func(t *testing.T, n *standIn) {
			n.mkdir("nix/store/old/etc/nixbench")
			for text, want := range map[string]string{"": "", "slurm\n": "slurm", "slurm": "slurm", "kubernetes\nmore\n": "kubernetes"} {
				if text != "" {
					n.write("nix/store/old/etc/nixbench/engine", text)
				}
				if got, err := n.a.Inspect(t.Context(), "web-1", n.host, Full); err != nil || got.Engine != want {
					t.Errorf("with the text %q: %q, %v", text, got.Engine, err)
				}
				_ = os.Remove(filepath.Join(n.root, "nix/store/old/etc/nixbench/engine"))
			}
		},
		"uploaded keys": func(t *testing.T, n *standIn) {
			n.mkdir("var/lib/nixbench")
			for _, file := range []string{"", "var/lib/nixbench/keys", "var/lib/nixbench/keys.new", "run/keys/.nixbench-before"} {
				if file != "" {
					n.write(file, "/run/keys/one\n")
				}
				if got, err := n.a.Inspect(t.Context(), "web-1", n.host, Full); err != nil || got.NoKeys != (file == "") {
					t.Errorf("with the file %q: NoKeys is %t, %v", file, got.NoKeys, err)
				}
				if file != "" {
					os.Remove(filepath.Join(n.root, file))
				}
			}
		},
		"switch that starts the service that watches keys": func(t *testing.T, n *standIn) {
			n.onNew(`only nixbench-keys.service 500 0 active running`)
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			if n.server.Handshakes() != 2 {
				t.Errorf("%d handshakes, want one to work with and one to confirm", n.server.Handshakes())
			}
		},
		"switch that starts a service with a similar name": func(t *testing.T, n *standIn) {
			n.onNew(`only db-keys.service 500 0 active running`)
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			if n.server.Handshakes() != 3 {
				t.Errorf("%d handshakes, want one to work with and two to confirm", n.server.Handshakes())
			}
		},
		"observed before": func(t *testing.T, n *standIn) {
			observed, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
			if err != nil {
				t.Fatal(err)
			}
			r := n.request()
			r.Observed = &observed
			if res, err := n.activate(r); err != nil || res.Outcome != Committed || res.Before.Generation != 1 || res.After.Generation != 2 {
				t.Errorf("%+v, %v", res, err)
			}
			if got := n.count("systemctl is-system-running"); got != 1 {
				t.Errorf("the node was inspected %d times", got)
			}
			n.is(n.newPath, n.newPath, "new test", "new boot")
		},
		"changed since it was observed": func(t *testing.T, n *standIn) {
			observed, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
			if err != nil {
				t.Fatal(err)
			}
			n.relink(filepath.Join(n.root, "nix/store/other"), "run/current-system")
			r := n.request()
			r.Observed, r.ReplaceUnknown, r.Known = &observed, false, []string{n.oldPath}
			_, err = n.activate(r)
			if unknown := (*UnknownProfileError)(nil); !errors.As(err, &unknown) || unknown.Path != filepath.Join(n.root, "nix/store/other") {
				t.Error(err)
			}
			n.is(filepath.Join(n.root, "nix/store/other"), n.oldPath)
		},
		"no system although it was observed": func(t *testing.T, n *standIn) {
			observed, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
			if err != nil {
				t.Fatal(err)
			}
			r := n.request()
			r.Observed, r.Path = &observed, filepath.Join(n.root, "nix/store/absent")
			_, err = n.activate(r)
			if missing := (*NotSystemError)(nil); !errors.As(err, &missing) {
				t.Error(err)
			}
			n.is(n.oldPath, n.oldPath)
		},
		"boot": func(t *testing.T, n *standIn) {
			r := n.request()
			r.Goal = Boot
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
			n.is(n.oldPath, n.newPath, "new boot")
		},
		"test": func(t *testing.T, n *standIn) {
			r := n.request()
			r.Goal = Test
			if res, err := n.activate(r); err != nil || res.Outcome != Activated {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.oldPath, "new test")
		},
		"step before the switch": func(t *testing.T, n *standIn) {
			n.beforeSwitch(`[ "$1" = switch ] && echo before >>"$WORLD/calls"`)
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new check", "before", "new test", "new boot")
		},
		"step before the switch fails": func(t *testing.T, n *standIn) {
			n.beforeSwitch(`echo "the image is missing"; exit 3`)
			for i, confirm := range []time.Duration{n.request().Confirm, 0} {
				r := n.request()
				r.Confirm = confirm
				_, err := n.activate(r)
				want := "the new system's step before the switch failed (exit 3)\n  the image is missing"
				if failed := (*FailedError)(nil); !errors.As(err, &failed) || failed.Result.Outcome != Failed || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("armed for %v: %v, want …%s", confirm, err, want)
				}
				n.is(n.oldPath, n.oldPath, slices.Repeat([]string{"new check"}, i+1)...)
			}
		},
		"step before the switch hangs": func(t *testing.T, n *standIn) {
			n.beforeSwitch(`sleep 60`)
			_, err := n.activate(n.request())
			if failed := (*FailedError)(nil); !errors.As(err, &failed) || failed.Reason != reasonHung || failed.Result.Outcome != RolledBack {
				t.Error(err)
			}
			n.is(n.oldPath, n.oldPath, "new check", "old test")
		},
		"unit fails": func(t *testing.T, n *standIn) {
			n.onNew("fails web.service; reports 'warning: the following units failed: web.service'")
			n.rollsBack(n.request(), reasonSwitch, "unit web.service failed; the node rolled back to "+n.oldPath+"\nweb.service:\n  it burns")
		},
		"script fails": func(t *testing.T, n *standIn) {
			n.onNew("code=2")
			n.rollsBack(n.request(), reasonSwitch, "the activation script failed (exit 2)")
		},
		"was failing before": func(t *testing.T, n *standIn) {
			n.write("world/failed", "web.service loaded failed failed web\n")
			n.onNew("reports 'warning: the following units failed: web.service'")
			if res, err := n.activate(n.request()); err != nil || !slices.Equal(res.AlreadyFailing, []string{"web.service"}) {
				t.Errorf("%+v, %v", res, err)
			}
		},

		// Failures after switch-to-configuration has returned.
		"slow unit fails": func(t *testing.T, n *standIn) {
			n.onNew(`ended() { fails slow.service; done_; }
jobs '12 slow.service start running' '11 multi-user.target start waiting'; later 1 ended`)
			n.rollsBack(n.request(), reasonLate, "unit slow.service failed soon after the switch; the node rolled back to "+n.oldPath+"\nslow.service:\n  it burns")
			if !strings.Contains(n.rec.log(), "waiting for systemd: start slow.service\n") {
				t.Error("the user is not told what the node waits for")
			}
		},
		"slow unit cuts the network": func(t *testing.T, n *standIn) {
			n.onNew(`ended() { touch $WORLD/locked; done_; }
jobs '12 firewall.service start running'; later 1 ended`)
			n.write("world/on-old", "rm $WORLD/locked")
			n.rollsBack(n.request(), reasonUnconfirmed, "no client could log in to confirm it within 4s; the node rolled back to "+n.oldPath+" automatically")
		},
		"service cuts the network while it is watched": func(t *testing.T, n *standIn) {
			n.onNew(`only firewall.service 500 0 active running; later 1.5 touch $WORLD/locked`)
			n.write("world/on-old", "rm $WORLD/locked")
			r := n.request()
			r.SettleTime = 3 * time.Second
			n.rollsBack(r, reasonUnconfirmed, "no client could log in")
		},
		"service dies": func(t *testing.T, n *standIn) {
			n.onNew(`dies() { fails web.service; only web.service 500 0 failed failed; }
only web.service 500 0 active running; later 1.5 dies`)
			r := n.request()
			r.SettleTime = 3 * time.Second
			n.rollsBack(r, reasonLate, "unit web.service failed soon after the switch")
		},
		"service dies after the settle time": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 0 active running; later 20 fails web.service`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"service is restarted again and again": func(t *testing.T, n *standIn) {
			n.onNew(`loops() { for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.7; only web.service $((500 + i)) $i active running; done; }
only web.service 500 0 active running; later 0 loops`)
			n.rollsBack(n.request(), reasonLate, "unit web.service failed soon after the switch")
		},
		"service is restarted too often": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 0 active running; later 0.7 only web.service 600 6 active running`)
			n.rollsBack(n.request(), reasonLate, "unit web.service failed soon after the switch")
		},
		"service waits to be restarted": func(t *testing.T, n *standIn) {
			n.write("world/idle", "web.service\n")
			n.onNew(`only web.service 500 1 activating auto-restart; echo "web.service loaded activating auto-restart" >$WORLD/failed`)
			n.rollsBack(n.request(), reasonLate, "unit web.service failed soon after the switch")
		},
		"service is started again at the moment": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 1 activating start-pre; echo "web.service loaded activating start-pre" >$WORLD/failed`)
			n.rollsBack(n.request(), reasonLate, "unit web.service failed soon after the switch")
		},
		"service recovers": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 0 active running; later 0.7 only web.service 600 1 active running`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"service was restarted all the time before": func(t *testing.T, n *standIn) {
			// A moment ago, by the machine's clock.
			recent := func(i int) string { return strconv.FormatInt(uptime(t).Microseconds()+int64(i), 10) }
			n.services("Type=simple NRestarts=7 Id=web.service ActiveState=active SubState=running ActiveEnterTimestampMonotonic=" + recent(0) + " Transient=no TriggeredBy=")
			n.onNew(`loops() { for i in 1 2 3 4 5 6; do sleep 0.7; only web.service ` + recent(1) + `$i $((i + 8)) active running; done; }
only web.service ` + recent(2) + ` 8 active running; later 0 loops`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"services that have started are watched, others are not": func(t *testing.T, n *standIn) {
			n.onNew(`{ service sshd.service 100 0 active running; service web.service 500 0 active running; service once.service 501 0 active exited oneshot; } >$WORLD/services`)
			if _, err := n.activate(n.request()); err != nil || !strings.Contains(n.rec.log(), "watching for 1s the started units: web.service \n") {
				t.Errorf("%v\n%s", err, n.rec.log())
			}
		},
		"switch hangs": func(t *testing.T, n *standIn) {
			n.onNew(`sleep 60`)
			n.rollsBack(n.request(), reasonHung, "no progress for 4s")
		},
		"aborted during the switch": func(t *testing.T, n *standIn) {
			n.onNew(`touch ` + n.root + `/run/nixbench/activate/abort; sleep 60`)
			r := n.request()
			r.Confirm = 20 * time.Second
			n.rollsBack(r, reasonAborted, "it was aborted")
		},
		"rollback fails": func(t *testing.T, n *standIn) {
			n.onNew("code=2")
			n.write("world/on-old", "code=2")
			res, err := n.activate(n.request())
			if err == nil || res.Outcome != RollbackFailed || !strings.Contains(err.Error(), "rollback to "+n.oldPath+" FAILED") {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "old test")
		},
		"job hangs": func(t *testing.T, n *standIn) {
			n.onNew(`jobs '12 stuck.service start running'`)
			n.rollsBack(n.request(), reasonHung, "no progress for 4s (start stuck.service): a slow switch needs a longer --timeout confirm=DURATION")
		},
		"systemd does not answer after the switch": func(t *testing.T, n *standIn) {
			n.onNew(`touch "$WORLD/no-jobs"`)
			n.write("world/on-old", `rm -f "$WORLD/no-jobs"`)
			n.rollsBack(n.request(), reasonHung, "no progress for 4s (systemd does not answer): a slow switch needs a longer --timeout confirm=DURATION")
		},
		"systemd answers late after the switch": func(t *testing.T, n *standIn) {
			n.onNew(`touch "$WORLD/no-jobs"; later 2 rm -f "$WORLD/no-jobs"`)
			if res, err := n.activate(n.request()); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
		},
		"login before and during a rollback": func(t *testing.T, n *standIn) {
			n.mkdir("run/nixbench/activate")
			for phase, want := range map[string]bool{"waiting": true, "settling": true, "rolling-back": false, "done": false} {
				n.write("run/nixbench/activate/state", "run=r1\nphase="+phase+"\nsaved=yes\n")
				w, called := n.a.newWatch("web-1", n.host, "r1", 4*time.Second), false
				w.loggedIn = func() { called = true }
				if err := w.runCommand(t.Context(), true, "confirm", "r1"); err != nil || called != want {
					t.Errorf("%s: AfterLogin is called: %t, want %t; %v", phase, called, want, err)
				}
			}
		},
		"jobs that are not the switch's": func(t *testing.T, n *standIn) {
			n.write("world/jobs", "3 dev-sdb.device start running\n")
			n.write("world/timed", "backup.service\n")
			n.onNew(`jobs ' 3 dev-sdb.device start running' '12 backup.service start running' '13 cri-1.scope start running' '14 web-key.service start running' '15 web.service start waiting' '└─ waiting for job 14 (web-key.service/start) - -'`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"jobs of a unit that was busy before": func(t *testing.T, n *standIn) {
			n.write("world/jobs", "3 slow.service start running\n")
			n.write("world/failed", "broken.service loaded activating auto-restart broken\n")
			n.onNew(`jobs '3 slow.service start running' '27 broken.service start running'`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"job that waits for a job from before": func(t *testing.T, n *standIn) {
			n.write("world/jobs", "3 old.service start running\n")
			n.onNew(`ended() { fails late.service; done_; }
jobs ' 3 old.service start running' '12 late.service start waiting' '└─ waiting for job 3 (old.service/start) - -'; later 2 ended`)
			n.rollsBack(n.request(), reasonLate, "unit late.service failed soon after the switch")
			if !strings.Contains(n.rec.log(), "waiting for systemd: start old.service (before late.service)\n") {
				t.Error("the user is not told what the node waits for")
			}
		},
		"job that waits too long for a job from before": func(t *testing.T, n *standIn) {
			n.write("world/jobs", "3 old.service start running\n")
			n.onNew(`jobs ' 3 old.service start running' '12 late.service start waiting' '└─ waiting for job 3 (old.service/start) - -'`)
			n.rollsBack(n.request(), reasonHung, "no progress for 4s (start old.service (before late.service)): a slow switch")
		},
		"job from before of a unit that the switch has changed": func(t *testing.T, n *standIn) {
			n.write("world/jobs", "3 web.service start waiting\n")
			for system, text := range map[string]string{"old": "ExecStart=a", "new": "ExecStart=b"} {
				n.mkdir("nix/store/" + system + "/etc/systemd/system")
				n.write("nix/store/"+system+"/etc/systemd/system/web.service", text)
			}
			n.onNew(`ended() { fails web.service; done_; }
jobs '3 web.service start waiting'; later 2 ended`)
			n.rollsBack(n.request(), reasonLate, "unit web.service failed soon after the switch")
		},
		"service of a timer that the switch has started": func(t *testing.T, n *standIn) {
			n.onNew(`dies() { fails job.service; echo "job.timer loaded active waiting" >>$WORLD/failed; }
echo job.service >$WORLD/timed; echo "job.timer loaded active waiting" >$WORLD/failed; later 1.5 dies`)
			r := n.request()
			r.SettleTime = 3 * time.Second
			n.rollsBack(r, reasonLate, "unit job.service failed soon after the switch")
		},
		"service that another service starts later": func(t *testing.T, n *standIn) {
			n.onNew(`first() { service web.service 500 0 active running; }; both() { { first; service db.service 600 0 "$1" "$2"; } >$WORLD/services.next; mv $WORLD/services.next $WORLD/services; }
dies() { fails db.service; both failed failed; }
first >$WORLD/services; whileWatched web.service both active running; whileWatched db.service dies`)
			r := n.request()
			r.SettleTime = 2 * time.Second
			n.rollsBack(r, reasonLate, "unit db.service failed soon after the switch")
		},
		"service that waits for a key": func(t *testing.T, n *standIn) {
			n.onNew(``)
			r := n.request()
			r.AfterSwitch = func(context.Context) bool {
				n.services("Type=simple NRestarts=0 Id=web.service ActiveState=active SubState=running ActiveEnterTimestampMonotonic=700 Transient=no TriggeredBy=")
				time.AfterFunc(700*time.Millisecond, func() {
					n.write("world/journal/web.service", "it burns\n")
					n.write("world/failed", "web.service loaded failed failed web.service\n")
				})
				return true
			}
			n.rollsBack(r, reasonLate, "unit web.service failed soon after the switch")
		},
		"service ends well between its runs": func(t *testing.T, n *standIn) {
			n.write("world/idle", "poll.service\n")
			n.onNew(`echo "poll.service loaded activating auto-restart" >$WORLD/failed`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"a timer's service fails while another is watched": func(t *testing.T, n *standIn) {
			n.write("world/timed", "backup.service\n")
			n.onNew(`both() { service web.service 500 0 $1; service backup.service 500 0 failed failed simple backup.timer; }
dies() { fails web.service; both "failed failed" >$WORLD/services; }
both "active running" >$WORLD/services; later 1.5 dies`)
			r := n.request()
			r.SettleTime = 3 * time.Second
			n.rollsBack(r, reasonLate, "unit web.service failed soon after the switch")
		},
		"a timer's service fails": func(t *testing.T, n *standIn) {
			n.write("world/timed", "backup.service\n")
			n.onNew(`only web.service 500 0 active running; later 0.5 fails backup.service`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"aborted while services are watched": func(t *testing.T, n *standIn) {
			n.onNew(`only web.service 500 0 active running; later 1 touch ` + n.root + `/run/nixbench/activate/abort`)
			r := n.request()
			r.SettleTime = 5 * time.Second
			n.rollsBack(r, reasonAborted, "it was aborted")
		},

		// What reaches the node after a rollback.
		"rollback does not restore the network, and a restart does": func(t *testing.T, n *standIn) {
			n.cutsNetwork()
			n.write("world/on-restart", "echo eth0 00000000 FE01A8C0 >"+n.root+"/proc/net/route; rm "+n.world+"/locked")
			res, err := n.activate(n.request())
			if !res.RolledBack() || !strings.Contains(fmt.Sprint(err), "; the rollback did not restore the route to the client, so the node restarted systemd-networkd.service") || strings.Contains(err.Error(), "rebooted") {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "old test", "restart systemd-networkd.service")
		},
		"rollback does not restore the network, and a reboot does": func(t *testing.T, n *standIn) {
			n.cutsNetwork()
			n.write("world/on-reboot", "rm "+n.world+"/locked")
			res, err := n.activate(n.request())
			if !res.RolledBack() || !strings.Contains(fmt.Sprint(err), "restarted systemd-networkd.service, and rebooted because no client could log in") {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "old test", "restart systemd-networkd.service", "systemctl reboot")
		},
		"another route after a rollback, and a client logs in": func(t *testing.T, n *standIn) {
			n.write("proc/net/route", "eth0 00000000 FE01A8C0\n")
			n.onNew(`echo eth1 00000000 FE01A8C0 >` + n.root + `/proc/net/route; code=2`)
			n.rollsBack(n.request(), reasonSwitch, "the activation script failed")
		},

		// Without an armed rollback.
		"unarmed": func(t *testing.T, n *standIn) {
			r := n.request()
			r.Confirm = 0
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
			n.is(n.newPath, n.newPath, "new switch")
		},
		"unarmed, service dies": func(t *testing.T, n *standIn) {
			n.onNew(`dies() { fails web.service; only web.service 500 0 failed failed; }
only web.service 500 0 active running; later 0.7 dies`)
			r := n.request()
			r.Confirm = 0
			res, err := n.activate(r)
			var failed *FailedError
			if !errors.As(err, &failed) || failed.Reason != reasonLate || res.Outcome != Failed || !slices.Equal(res.Broken, []string{"web.service"}) {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new switch")
		},

		// What a rollback restores: profile, boot loader, keys.
		"boot loader fails": func(t *testing.T, n *standIn) {
			n.write("world/on-new", `[ "$action" != boot ] || code=1`)
			res, err := n.activate(n.request())
			var failed *FailedError
			if !errors.As(err, &failed) || failed.Reason != reasonBoot || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
			if _, err := os.Lstat(filepath.Join(n.root, "nix/var/nix/profiles/system-2-link")); err == nil {
				t.Error("the profile still has the generation of the system that could not be installed")
			}
		},
		"boot loader hangs": func(t *testing.T, n *standIn) {
			n.write("world/on-new", `[ "$action" != boot ] || { trap "" TERM; sleep 300; }`)
			res, err := n.activate(n.request())
			var failed *FailedError
			if !errors.As(err, &failed) || failed.Reason != reasonBoot || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			if state := n.read("var/lib/nixbench/activate/state"); !strings.Contains(state, "\ncode=hung\n") {
				t.Errorf("the record of the run:\n%s", state)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
		},
		"boot loader fails while the profile has a newer generation": func(t *testing.T, n *standIn) {
			n.link(filepath.Join(n.root, "nix/store/other"), "nix/var/nix/profiles/system-2-link")
			n.write("world/on-new", `[ "$action" != boot ] || code=1`)
			if res, err := n.activate(n.request()); err == nil || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
			if links := n.glob("nix/var/nix/profiles/system-*-link"); links != "system-1-link system-2-link" {
				t.Errorf("the profile has %s", links)
			}
		},
		"boot loader fails for an older generation": func(t *testing.T, n *standIn) {
			n.link(n.newPath, "nix/var/nix/profiles/system-2-link")
			n.write("world/on-new", `[ "$action" != boot ] || code=1`)
			r := n.request()
			r.Generation = 2
			if res, err := n.activate(r); err == nil || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
			if links := n.glob("nix/var/nix/profiles/system-*-link"); links != "system-1-link system-2-link" {
				t.Errorf("the profile has %s", links)
			}
		},
		"boot loader fails for a generation that exists": func(t *testing.T, n *standIn) {
			n.link(n.newPath, "nix/var/nix/profiles/system-2-link")
			n.write("world/on-new", `[ "$action" != boot ] || code=1`)
			if res, err := n.activate(n.request()); err == nil || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
			if links := n.glob("nix/var/nix/profiles/system-*-link"); links != "system-1-link system-2-link" {
				t.Errorf("the profile has %s", links)
			}
		},
		"keys": func(t *testing.T, n *standIn) {
			n.onNew("code=2")
			n.mkdir("run/keys/.nixbench-before")
			n.write("run/keys/.nixbench-before/restore", "echo restored >"+n.world+"/keys; echo keys >>"+n.world+"/calls")
			_, err := n.activate(n.request())
			if err == nil || n.read("world/keys") != "restored\n" {
				t.Errorf("the keys from before were not restored: %v", err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "keys", "old test") // before the services that use them start
		},
		"keys of a system that stays": func(t *testing.T, n *standIn) {
			n.mkdir("run/keys/.nixbench-before")
			n.write("run/keys/.nixbench-before/restore", "echo restored >"+n.world+"/keys")
			_, err := n.activate(n.request())
			if _, left := os.Stat(filepath.Join(n.root, "run/keys/.nixbench-before")); err != nil || left == nil || n.read("world/keys") != "" {
				t.Errorf("old keys: %q, left behind: %v (%v)", n.read("world/keys"), left == nil, err)
			}
		},
		"keys that the client may restore later": func(t *testing.T, n *standIn) {
			n.mkdir("run/keys/.nixbench-before")
			n.write("run/keys/.nixbench-before/restore", "")
			n.write("run/keys/.nixbench-before/hold", "")
			_, err := n.activate(n.request())
			if got := n.glob("run/keys/.nixbench-before/*"); err != nil || got != "hold restore settled" {
				t.Errorf("the backup has %s (%v)", got, err)
			}
		},

		// What remains on the node.
		"record after a reboot": func(t *testing.T, n *standIn) {
			if _, err := n.activate(n.request()); err != nil {
				t.Fatal(err)
			}
			n.waitForEnd("nixbench-activate.service") // it still writes into the folder after it has reported its result
			if err := os.RemoveAll(filepath.Join(n.root, "run/nixbench")); err != nil {
				t.Fatal(err)
			}
			node, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
			if err != nil || node.Last == nil || node.Last.ID != "r1" || node.Last.Outcome != Committed || !slices.Contains(node.Deployed, n.newPath) {
				t.Errorf("%+v, %v", node, err)
			}
		},
		"records of deployed systems": func(t *testing.T, n *standIn) {
			n.mkdir("var/lib/nixbench/activate")
			n.write("var/lib/nixbench/activate/deployed", "/nix/store/first r0\n/nix/store/second r0\n")
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
			if got, want := n.read("var/lib/nixbench/activate/deployed"), "/nix/store/first r0\n/nix/store/second r0\n"+n.newPath+" r1\n"; got != want {
				t.Errorf("the node has the records\n%swant\n%s", got, want)
			}
			var many strings.Builder
			for i := range 450 {
				fmt.Fprintf(&many, "/nix/store/%d r0\n", i)
			}
			n.write("var/lib/nixbench/activate/deployed", many.String())
			r := n.request()
			r.Path, r.Run = n.oldPath, "r2"
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
			if got := strings.Split(n.read("var/lib/nixbench/activate/deployed"), "\n"); len(got) != 202 || got[0] != "/nix/store/250 r0" || got[200] != n.oldPath+" r2" {
				t.Errorf("%d records, the first is %s", len(got), got[0])
			}
		},
		"the previous run has not ended yet": func(t *testing.T, n *standIn) {
			if _, err := n.activate(n.request()); err != nil {
				t.Fatal(err)
			}
			n.holdUnit("nixbench-activate.service")
			r := n.request()
			r.Run, r.Path = "r2", n.oldPath
			_, err := n.activate(r)
			if busy := (*BusyError)(nil); !errors.As(err, &busy) {
				t.Error(err)
			}
			if got := n.read("run/nixbench/activate/state"); !strings.Contains(got, "run=r1\n") {
				t.Errorf("the record of the run was replaced:\n%s", got)
			}
		},
		"roots of the garbage collector": func(t *testing.T, n *standIn) {
			roots := "nix/var/nix/gcroots/nixbench/"
			// The environment of the run's process is a root.
			n.onNew(`tr '\0' '\n' </proc/$PPID/environ | grep '^NIXBENCH_SYSTEM=' >$WORLD/roots; readlink ` + n.root + "/" + roots + `previous >>$WORLD/roots`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
			if got := n.read("world/roots"); got != "NIXBENCH_SYSTEM="+n.newPath+"\n"+n.oldPath+"\n" {
				t.Errorf("during the switch: %q", got)
			}
			if got := n.glob(roots + "*"); got != "previous" {
				t.Errorf("after the switch: %s", got)
			}
		},
		"lists of units of a killed switch": func(t *testing.T, n *standIn) {
			n.mkdir("nix/store/old/etc/systemd/system")
			for _, unit := range []string{"web.service", "getty@.service"} {
				n.write("nix/store/old/etc/systemd/system/"+unit, "")
			}
			n.onNew("code=2; mkdir -p " + n.root + "/run/nixos; printf '%s\\n' web.service getty@tty1.service added.service >" + n.root + "/run/nixos/start-list")
			n.rollsBack(n.request(), reasonSwitch, "the activation script failed")
			if got := n.read("run/nixos/start-list"); got != "web.service\ngetty@tty1.service\n" {
				t.Errorf("the old system would start %q", got)
			}
		},
		"killed":  func(t *testing.T, n *standIn) { n.rollsBackAfter("KILL") },
		"stopped": func(t *testing.T, n *standIn) { n.rollsBackAfter("TERM") },
		"killed while the boot loader is installed": func(t *testing.T, n *standIn) {
			n.write("world/on-new", `[ "$action" != boot ] || { kill -KILL $(cat $WORLD/units/nixbench-activate.service.main); sleep 10; }`)
			if res, err := n.activate(n.request()); err == nil || !res.RolledBack() {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "new boot", "old boot", "old test")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStandIn(t))
		})
	}
}

// cutsNetwork makes the new system change the route to the client and refuse logins. The old system does not undo it.
func (n *standIn) cutsNetwork() {
	n.write("proc/net/route", "eth0 00000000 FE01A8C0\n")
	n.services("Type=notify NRestarts=0 Id=systemd-networkd.service ActiveState=active SubState=running ActiveEnterTimestampMonotonic=100 Transient=no TriggeredBy=")
	n.onNew(`: >` + n.root + `/proc/net/route; touch $WORLD/locked`)
}

// rollsBack asserts that a switch fails, for which reason, and that the node is in its previous state.
func (n *standIn) rollsBack(r Request, reason, want string) {
	n.t.Helper()
	res, err := n.activate(r)
	var failed *FailedError
	if !errors.As(err, &failed) || failed.Reason != reason || !strings.Contains(err.Error(), want) {
		n.t.Errorf("got  %v\nwant %s, reason %s", err, want, reason)
	}
	if !res.RolledBack() {
		n.t.Errorf("%+v", res)
	}
	n.is(n.oldPath, n.oldPath, "new test", "old test")
}

// rollsBackAfter asserts that the node rolls back if its run gets a signal while it watches a service.
func (n *standIn) rollsBackAfter(signal string) {
	n.t.Helper()
	n.onNew(`ends() { kill -` + signal + ` $(cat $WORLD/units/nixbench-activate.service.main); }
only web.service 500 0 active running; later 1 ends`)
	r := n.request()
	r.SettleTime = 3 * time.Second
	n.rollsBack(r, reasonKilled, "the switch was killed on the node")
}

// When a client is killed between its two confirmations, the node rolls back, or the next run to
// the same system confirms it.
func TestScriptConfirmedOnce(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	w := n.a.newWatch("web-1", n.host, "r1", 20*time.Second)
	n.onNew(`only web.service 500 0 active running`)
	start := []string{"start", "r1", "switch", n.newPath, "", "20", "", "", "1"}
	if err := w.follow(t.Context(), false, start...); err != nil || w.lastRun().phase != phaseWaiting {
		t.Fatalf("%+v, %v", w.lastRun(), err)
	}
	if err := w.follow(t.Context(), true, "confirm", "r1"); err != nil || w.lastRun().phase != phaseConfirmed {
		t.Fatalf("%+v, %v", w.lastRun(), err)
	}
	n.is(n.newPath, n.oldPath, "new test") // nothing is permanent yet
	r := n.request()
	r.Run = "r2"
	res, err := n.activate(r)
	if err != nil || res.PreviousRun == nil || res.PreviousRun.Outcome != Committed || res.Changed {
		t.Errorf("%+v, %v", res, err)
	}
	n.is(n.newPath, n.newPath, "new test", "new boot")
}

// Health checks are run between the two confirmations, also if the switch has started nothing. The node rolls back when they fail,
// when their time and the confirm time are over, and when their client has been killed.
func TestScriptHealthChecks(t *testing.T) {
	unhealthy := errors.New("health check web: status 503")
	for name, test := range map[string]func(t *testing.T, n *standIn, r Request){
		"pass, later than the confirm time": func(t *testing.T, n *standIn, r Request) {
			r.HealthTime, r.CheckHealth = time.Minute, func(context.Context) error {
				n.is(n.newPath, n.oldPath, "new test") // nothing is permanent yet
				confirmed, logins := uptime(t), n.host.Handshakes()
				waitFor(t, 20*time.Second, "the end of the confirm time, and this nixbench to follow the run over a new connection", func() bool {
					seen, err := os.Stat(filepath.Join(n.root, "run/nixbench/activate/seen"))
					return uptime(t) > confirmed+r.Confirm+time.Second && err == nil && time.Since(seen.ModTime()) < abandonedAfter && n.host.Handshakes() > logins
				})
				return nil
			}
			if res, err := n.activate(r); err != nil || res.Outcome != Committed {
				t.Errorf("%+v, %v", res, err)
			}
			n.is(n.newPath, n.newPath, "new test", "new boot")
		},
		"fail": func(t *testing.T, n *standIn, r Request) {
			n.onNew(`only web.service 500 0 active running`)
			calls := 0
			r.HealthTime, r.CheckHealth = time.Minute, func(context.Context) error { calls++; return unhealthy }
			n.rollsBack(r, reasonAborted, ": health check web: status 503; the node rolled back to "+n.oldPath)
			if calls != 1 {
				t.Errorf("the checks were run %d times", calls)
			}
		},
		"fail, for the goal test": func(t *testing.T, n *standIn, r Request) {
			r.Goal, r.HealthTime, r.CheckHealth = Test, time.Minute, func(context.Context) error { return unhealthy }
			n.rollsBack(r, reasonAborted, unhealthy.Error())
		},
		"last for too long": func(t *testing.T, n *standIn, r Request) {
			r.HealthTime, r.CheckHealth = time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			n.rollsBack(r, reasonUnconfirmed, "no client could log in to confirm it within "+(r.Confirm+r.HealthTime).String())
		},
		"their client is killed": func(t *testing.T, n *standIn, r Request) {
			ctx, cancel := context.WithCancelCause(t.Context())
			killed := errors.New("killed")
			r.HealthTime, r.CheckHealth = time.Second, func(ctx context.Context) error { cancel(killed); return unhealthy }
			_, err := n.a.Activate(ctx, "web-1", n.host, r)
			if lost := (*LostSightError)(nil); !errors.As(err, &lost) || !errors.Is(err, killed) || !strings.Contains(lost.Brief(), "rolls back ") {
				t.Error(err)
			}
			waitFor(t, 30*time.Second, "the node to roll back", func() bool {
				node, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
				return err == nil && node.Last.Outcome == RolledBack && node.Last.Reason == reasonUnconfirmed
			})
			n.is(n.oldPath, n.oldPath, "new test", "old test")
		},
		"the next run repeats them": func(t *testing.T, n *standIn, r Request) {
			ctx, cancel := context.WithCancel(t.Context())
			r.HealthTime, r.CheckHealth = time.Minute, func(ctx context.Context) error { cancel(); return nil }
			if _, err := n.a.Activate(ctx, "web-1", n.host, r); err == nil {
				t.Error("a cancelled run has confirmed its switch")
			}
			run, err := n.a.FinishPrevious(t.Context(), "web-1", n.host, n.newPath, func(context.Context) error { return unhealthy })
			if err != nil || run == nil || run.Outcome != RolledBack {
				t.Errorf("%+v, %v", run, err)
			}
			n.is(n.oldPath, n.oldPath, "new test", "old test")
		},
		"unarmed": func(t *testing.T, n *standIn, r Request) {
			r.Confirm, r.HealthTime, r.CheckHealth = 0, time.Minute, func(context.Context) error { t.Error("it cannot roll back"); return nil }
			if _, err := n.activate(r); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newStandIn(t)
			test(t, n, n.request())
		})
	}
}

// After a reboot, a client that follows the run gets the state of the node, since the node runs its previous system.
func TestScriptFollowAfterReboot(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	n.mkdir("var/lib/nixbench/activate")
	n.write("var/lib/nixbench/activate/state", "run=r1\ngoal=switch\nphase=starting\narmed=20\nboot=another\nfrom="+n.oldPath+"\npath="+n.newPath+"\nto="+n.newPath+"\nsaved=yes\n")
	w := n.a.newWatch("web-1", n.host, "r1", 20*time.Second)
	if err := w.follow(t.Context(), false, "follow", "r1"); err != nil {
		t.Fatal(err)
	}
	res, err := w.evaluate(n.request(), Result{})
	if !w.lastRun().Rebooted || !res.RolledBack() || err == nil {
		t.Errorf("%+v, %+v, %v", w.lastRun(), res, err)
	}
}

// A run is not started while another one is active: the active run and its record stay as they are.
func TestScriptBusy(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	start := func(run string) error {
		return n.a.newWatch("web-1", n.host, run, 20*time.Second).follow(t.Context(), false, "start", run, "switch", n.newPath, "", "20", "", "", "1")
	}
	if err := start("r1"); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if err := start("r2"); !errors.As(err, &busy) {
		t.Errorf("%v", err)
	}
	node, err := n.a.Inspect(t.Context(), "web-1", n.host, Full)
	if err != nil || node.Last == nil || node.Last.ID != "r1" || !node.Last.Alive || node.Last.phase != phaseWaiting {
		t.Errorf("%+v, %v", node.Last, err)
	}
	n.is(n.newPath, n.oldPath, "new test")
}

// uptime is the time since this machine's boot.
func uptime(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}
