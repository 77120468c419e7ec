// Package stages carries out what a session is asked for: it applies a hive to its nodes, previews that, and rolls back, reboots and
// destroys nodes. It does not print: it sends events. Every stage takes the value of the stage before it:
//
//	machines ──▶ facts ──▶ systems ─┐
//	         ──▶ observations ──────┴─▶ plan.Decide ──▶ rollout.Execute ──▶ results ──▶ Verify
//
// A goroutine for each node waits for the machine and the system of its node, and copies the system. Nothing else is changed
// on any node before all systems are built and the plan is decided. A stage processes every node, also after the
// failure of another one, and its error contains all failures.
//
// The command plan prints the plan that apply executes. A rollback and a reboot make a plan of their own, and have the same executor.
package stages
