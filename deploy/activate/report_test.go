package activate

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Tests how the node's script judges what switch-to-configuration has reported. The lines and exit codes are those of
// switch-to-configuration-ng.
func TestScriptReport(t *testing.T) {
	const broken = "warning: the following units failed: web.service"
	for name, test := range map[string]func(*testing.T, *standIn){
		"exit code 4 although the activation script failed": func(t *testing.T, n *standIn) {
			n.write("world/failed", "web.service loaded failed failed web\n")
			n.onNew("echo 'Failed to run activate script' >&2; reports '" + broken + "'")
			n.rollsBack(n.request(), reasonSwitch, "the activation script failed (exit 2)")
		},
		"unit that cannot be started": func(t *testing.T, n *standIn) {
			n.onNew(`reports 'Failed to start web.service'`)
			n.rollsBack(n.request(), reasonSwitch, "unit web.service failed")
		},
		"job that systemd refuses": func(t *testing.T, n *standIn) {
			n.onNew(`reports 'Failed to restart web.service: Unit web.service is masked.'`)
			n.rollsBack(n.request(), reasonSwitch, "unit web.service failed")
		},
		"unit that cannot be reloaded and failed before": func(t *testing.T, n *standIn) {
			n.write("world/failed", "web.service loaded failed failed web\n")
			n.onNew("reports 'Failed to reload web.service' '" + broken + "'")
			if res, err := n.activate(n.request()); err != nil || !slices.Equal(res.AlreadyFailing, []string{"web.service"}) {
				t.Errorf("%+v, %v", res, err)
			}
		},
		"lines of the activation script": func(t *testing.T, n *standIn) {
			n.write("world/failed", "web.service loaded failed failed web\n")
			n.onNew("echo 'Failed to start other.service: Unit other.service not found.' >&2; reports '" + broken + "'")
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"user whose activation fails": func(t *testing.T, n *standIn) {
			n.holdUnit("user@0.service")
			n.onNew(`echo 'Failed to start user unit notes.service' >&2; echo 'warning: user activation for root failed' >&2; reports`)
			n.rollsBack(n.request(), reasonSwitch, "the activation of these users failed: root (exit 4)")
		},
		"user whose service manager does not run": func(t *testing.T, n *standIn) {
			n.onNew(`echo 'warning: user activation for root failed' >&2; reports`)
			if _, err := n.activate(n.request()); err != nil {
				t.Error(err)
			}
		},
		"exit code 4 without a reason": func(t *testing.T, n *standIn) {
			n.onNew(`code=4`)
			n.rollsBack(n.request(), reasonSwitch, "units failed (exit 4)")
		},
		"exit code 11 of another error": func(t *testing.T, n *standIn) {
			n.onNew(`echo 'Unable to list users with logind: timed out' >&2; code=11`)
			n.rollsBack(n.request(), reasonSwitch, "switch-to-configuration failed (exit 11)")
		},
		"another switch is running": func(t *testing.T, n *standIn) {
			n.write("nix/store/new/bin/switch-to-configuration", "#!/bin/sh\necho \"new $1\" >>"+n.world+"/calls\necho 'Could not acquire lock'; exit 11\n")
			_, err := n.activate(n.request())
			if failed := (*FailedError)(nil); !errors.As(err, &failed) || failed.Reason != reasonLocked || failed.Result.Outcome != Failed {
				t.Error(err)
			}
			n.is(n.oldPath, n.oldPath, "new test")
		},
		"another switch is running before the step before the switch": func(t *testing.T, n *standIn) {
			n.beforeSwitch(`echo before >>"$WORLD/calls"`)
			n.write("nix/store/new/bin/switch-to-configuration", "#!/bin/sh\necho \"new $1\" >>"+n.world+"/calls\necho 'Could not acquire lock'; exit 11\n")
			_, err := n.activate(n.request())
			if failed := (*FailedError)(nil); !errors.As(err, &failed) || failed.Reason != reasonLocked || failed.Result.Outcome != Failed {
				t.Error(err)
			}
			n.is(n.oldPath, n.oldPath, "new check")
		},
		"rollback with exit code 4 although the activation script failed": func(t *testing.T, n *standIn) {
			n.onNew("code=2")
			n.write("world/on-old", "echo 'Failed to run activate script' >&2; code=4")
			res, err := n.activate(n.request())
			if err == nil || res.Outcome != RollbackFailed || !strings.Contains(err.Error(), "rollback to "+n.oldPath+" FAILED") {
				t.Errorf("%+v, %v", res, err)
			}
		},
		"rollback after a report": func(t *testing.T, n *standIn) {
			n.onNew("echo 'Failed to run activate script' >&2; reports")
			n.write("world/on-old", "echo 'warning: the following units failed: web.service' >&2; code=4")
			n.rollsBack(n.request(), reasonSwitch, "the activation script failed (exit 2)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStandIn(t))
		})
	}
}

// When a pre-switch check fails, the node and its keys are as before, and nothing is rolled back.
func TestScriptRefused(t *testing.T) {
	for name, change := range map[string]func(*standIn, *Request) []string{
		"switch":      func(n *standIn, _ *Request) []string { return []string{"new test"} },
		"no rollback": func(n *standIn, r *Request) []string { r.Confirm = 0; return []string{"new switch"} },
		"boot":        func(n *standIn, r *Request) []string { r.Goal = Boot; return []string{"new boot"} },
		"again": func(n *standIn, r *Request) []string {
			n.mkdir("var/lib/nixbench/activate")
			n.write("var/lib/nixbench/activate/state", "run=r0\ngoal=switch\nphase=done\noutcome=failed\npath="+n.oldPath+"\nsaved=yes\n")
			r.Path = n.oldPath
			n.write("world/check-old", n.read("world/check-new"))
			return []string{"old test"}
		},
		"before the step before the switch": func(n *standIn, _ *Request) []string {
			n.beforeSwitch(`echo before >>"$WORLD/calls"`)
			return []string{"new check"}
		},
		"nixos-rebuild": func(n *standIn, r *Request) []string {
			n.install("bin/nixos-rebuild", "run/wrappers/bin/nixos-rebuild", "")
			r.Activator, r.Confirm = NixosRebuild, 0
			return []string{"new switch"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newStandIn(t)
			n.refuses("disk", "the disk is too small")
			n.mkdir("run/keys/.nixbench-before")
			n.write("run/keys/.nixbench-before/restore", "echo restored >"+n.world+"/keys")
			r := n.request()
			calls := change(n, &r)
			res, err := n.activate(r)
			var failed *FailedError
			if !errors.As(err, &failed) || failed.Reason != reasonRefused || res.Outcome != Failed || res.Exit != 1 {
				t.Errorf("%+v, %v", res, err)
			}
			want := "a pre-switch check of the new system failed, and nothing was changed (exit 1)\n"
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "\n  the disk is too small\n") {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if n.read("world/keys") != "restored\n" {
				t.Error("the keys from before were not restored")
			}
			n.is(n.oldPath, n.oldPath, calls...)
			if links := n.glob("nix/var/nix/profiles/system-*-link"); links != "system-1-link" {
				t.Errorf("the profile has %s", links)
			}
		})
	}
}

// The error of a switch that a check refuses contains the output of the check.
func TestScriptInhibited(t *testing.T) {
	t.Parallel()
	n := newStandIn(t)
	n.refuses("switchInhibitors", "There are changes to critical components of the system:\n\ndbus : dbus -> broker\n"+strings.Repeat("\n", 12))
	_, err := n.activate(n.request())
	if err == nil || !strings.Contains(err.Error(), "\n  dbus : dbus -> broker\n") {
		t.Errorf("%v", err)
	}
}
