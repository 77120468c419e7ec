// Package activate makes a node run a system that is in its store already, and
// rolls back if that fails.
//
//	a := activate.Activator{Send: send}
//	node, err := a.Inspect(ctx, "web-1", host)      // running system, failed units, unfinished run
//	res, err := a.Activate(ctx, "web-1", host, activate.Request{
//		Path: "/nix/store/…-nixos-system-web-1", Goal: activate.Switch, Run: id, Confirm: time.Minute,
//	})
//
// # What happens on the node
//
// A run is a transient unit of the node, nixbench-activate.service, which executes a
// shell script (folder sh). The script alone decides how the run goes on. The client
// starts it, follows it, and confirms that it can still log in. The run therefore
// ends correctly even if the client loses the connection or is killed.
//
//  1. The script records the running system and the units that have failed already,
//     and protects both systems from the garbage collector.
//  2. It calls the new system's switch-to-configuration with "test", in a second
//     transient unit, so that a hanging switch can be killed as a whole.
//  3. It waits for a confirmation, which the client sends over a new connection.
//  4. After the confirmation it sets the profile and calls switch-to-configuration
//     with "boot".
//
// Since the profile and the boot loader are changed after the confirmation, they need
// no rollback: a machine that reboots or loses its power before that boots the old
// system. In every other case the script itself rolls back: immediately when the
// switch fails or hangs, and otherwise when no confirmation arrives in time. If the
// script is killed, systemd runs it again for the rollback (ExecStopPost).
//
// Keys that were uploaded before the switch are restored with it: package secrets
// leaves a script in /run/keys/.nixbench-before for that. A run that is not rolled
// back removes it.
//
// The time limit is [Request.Confirm]. While the switch runs it counts from the last
// sign of progress: a line of its log, or a change in systemd's queue of jobs.
// Afterwards it counts from the end of the switch. With a Confirm of zero no rollback
// is armed, and profile and boot loader are set first, as nixos-rebuild does it.
//
// If the client is killed before it confirms, the node rolls back automatically. If it is
// killed later, the node completes the run. [Activator.Activate] first finishes an
// unfinished run, see [Activator.FinishPrevious].
//
// # Results
//
// A unit that failed before the switch and fails again does not make the switch fail:
// [Result.AlreadyFailing]. A unit that failed in this switch causes a [*FailedError]
// with the unit's name and the last lines of its log.
package activate
