// Package activate makes a node run a system that is in the node's store, and rolls back if the activation fails.
//
// A run is a transient systemd unit of the node, nixbench-activate.service. It executes a shell script (folder sh). Only the script
// decides whether to continue or to roll back. The client starts the script, reads its output, and confirms that the client can
// still log in. The run therefore ends correctly even if the client loses the connection or is killed.
//
//  1. The script records the running system and the systemd units that have failed already,
//     and protects the running and the new system from the garbage collector.
//  2. The script calls the new system's switch-to-configuration with "test". If the switch hangs,
//     the script kills all processes in the run's control group but itself.
//  3. The script waits for systemd's jobs, and then for a confirmation, which the client sends over a
//     new connection. If the switch has started services, the script watches these services.
//     If it has, or if the node has health checks, which the client runs then, the script waits
//     for a second confirmation. If a check fails, the client asks the script to roll back.
//  4. After the last confirmation the script sets the profile and calls
//     switch-to-configuration with "boot". So a machine that reboots earlier boots the old system.
//
// Otherwise the script rolls back: immediately when the switch fails or hangs, and after the time limit when no confirmation
// arrives. If the script is killed, systemd runs it again for the rollback (Restart=). A rollback also restores the keys that
// were uploaded before the switch (package secrets), and what differs in sshd, the routes and the firewall (sh/reach.sh).
//
// The time limit is [Request.Confirm]. While the switch runs, the time is counted from the last progress: a line of the switch's
// log, or a change in systemd's queue of jobs. Afterwards it is counted from the end of the switch, and [Request.HealthTime] is
// added for the second confirmation. If Confirm is zero, no rollback is armed, and the profile and the boot loader are set first,
// as by nixos-rebuild.
//
// If the client is killed before it confirms, the node rolls back. If the client is killed later, the
// node completes the run. [Activator.Activate] first finishes an unfinished earlier run.
//
// If a systemd unit fails in this switch and did not fail before, the error is a [*FailedError]
// with the name of the unit and the last lines of its log.
package activate
