// Package activate makes a node run a system that is in its store already, and
// takes it back where that goes wrong.
//
//	a := activate.Activator{Send: send}
//	node, err := a.Inspect(ctx, "web-1", host)      // what it runs, what failed, what is left of a killed run
//	res, err := a.Activate(ctx, "web-1", host, activate.Request{
//		Path: "/nix/store/…-nixos-system-web-1", Goal: activate.Switch, Run: id, Confirm: time.Minute,
//	})
//
// # What happens on the node
//
// A run is a transient unit of the node, nixbench-activate.service, which is a
// shell script (folder sh). It decides alone; we start it, watch it, and confirm
// that we still get in. So it does not matter when we are cut off or killed.
//
//  1. It notes what runs now, which units failed already, and keeps both
//     systems from the garbage collector.
//  2. It calls the new system's switch-to-configuration with "test", in one more
//     transient unit, so that a hanging switch can be ended as a whole.
//  3. It waits for a confirmation, which comes over a fresh connection.
//  4. Only then does it set the profile and call switch-to-configuration with
//     "boot".
//
// Since the profile and the boot loader follow the confirmation, they need no
// rollback: a machine that reboots inside the window, or loses its power, is back in
// its old system by construction. In every other case the script itself
// goes back: at once when the switch failed or hangs, and when the time for a
// confirmation is up. If the script is killed, systemd runs it once more for
// that (ExecStopPost).
//
// Keys that came before the switch go back with it: package secrets leaves a script in
// /run/keys/.nixbench-before for that, and a run that stays removes it.
//
// The time is [Request.Confirm]. While the switch runs it counts from the last
// sign of progress: a line of its log, or a change in systemd's queue of jobs.
// Afterwards it counts from the end of the switch. With a Confirm of zero nothing
// is armed, and profile and boot loader are set first, as nixos-rebuild does it.
//
// A run whose client was killed before it confirmed goes back by itself. One whose
// client was killed later is finished by the node. [Activator.Activate] first
// settles what it finds: see [Activator.FinishPrevious].
//
// # Results
//
// A unit that failed before and fails again is not held against the new system:
// [Result.AlreadyFailing]. One that failed with this switch is a
// [*FailedError] that names it with the last lines of its log.
package activate
