package activate

import (
	"fmt"
	"time"
)

// Run is a node's record of one activation of a system by nixbench.
type Run struct {
	ID      string
	Goal    Goal
	From    string        // the system that ran before; empty if there was none
	To      string        // the system to run
	Armed   time.Duration // the node rolls back after this time without a confirmation; 0: no rollback
	Time    time.Time     // when the record was last changed
	Outcome Outcome       // how the run ended; empty while it runs, and if a reboot ended it
	Reason  string        // why the run failed or was rolled back: one of the constants that begin with reason

	// Alive means that the run has not ended. Remaining is then the time until the node rolls back, counted from the
	// inspection of the node. Seen is the time since a nixbench last followed the run.
	Alive     bool
	Remaining time.Duration
	Seen      time.Duration

	// Rebooted means that a reboot ended the run. The node then runs the old system, unless
	// the run had already made the new system the boot default.
	Rebooted bool

	phase          string
	bootID         string
	code           string
	path           string
	broken         []string
	users          []string // whose activation failed
	alreadyFailing []string
	jobs           string
	restored       string // what differed after the rollback (sshd, a route, the firewall), and what the node did to restore it
}

// Outcome is how a run ended.
type Outcome string

const (
	Committed      Outcome = "committed"       // the system runs and is the boot default
	Activated      Outcome = "activated"       // the system runs, but is not the boot default
	BootDefault    Outcome = "boot"            // the system is the boot default, but was not activated
	RolledBack     Outcome = "rolled-back"     // the node runs the previous system again
	Failed         Outcome = "failed"          // the run failed and was not rolled back
	RollbackFailed Outcome = "rollback-failed" // the rollback failed; the node's state is unknown
)

// Phases of a run in which the run waits until a client (nixbench) has logged in over a new connection and confirmed the run.
const (
	phaseWaiting   = "waiting"   // first confirmation, after systemd's jobs are done
	phaseConfirmed = "confirmed" // second confirmation, after the started services have stayed active
	phaseReturned  = "returned"  // after a rollback, if sshd, a route or the firewall is not as before the switch
)

// Reasons for an outcome, as the node's script records them.
const (
	reasonSwitch      = "switch"
	reasonPrepare     = "prepare"
	reasonRefused     = "refused" // nothing was changed
	reasonLate        = "late"
	reasonHung        = "hung"
	reasonUnconfirmed = "unconfirmed"
	reasonAborted     = "aborted"
	reasonKilled      = "killed"
	reasonLocked      = "locked"
	reasonReboot      = "reboot"
	reasonProfile     = "profile"
	reasonBoot        = "boot"
	reasonRebooted    = "rebooted"
	reasonElsewhere   = "elsewhere" // not written by the script on the node: the run succeeded, but the node runs or boots another system
)

// reasonTexts describes the reasons for the user, without what only an error knows, such as a time limit.
var reasonTexts = map[string]string{
	reasonSwitch:      "the switch failed",
	reasonPrepare:     "the new system's step before the switch failed",
	reasonRefused:     "a pre-switch check of the new system failed, and nothing was changed",
	reasonLate:        "units failed soon after the switch",
	reasonHung:        "it made no progress",
	reasonUnconfirmed: "no client confirmed it",
	reasonAborted:     "it was aborted",
	reasonKilled:      "the switch was killed on the node",
	reasonLocked:      "another switch is running on the node (exit 11): try again when it is done",
	reasonReboot:      "it needs a reboot (exit 100): use the goal boot, then reboot",
	reasonProfile:     "the profile could not be set",
	reasonBoot:        "the boot loader could not be installed",
	reasonRebooted:    "the node rebooted before it was confirmed",
}

// isAwaitingConfirmation reports whether the run waits for a client to confirm it.
func (r Run) isAwaitingConfirmation() bool {
	return r.phase == phaseWaiting || r.phase == phaseConfirmed || r.phase == phaseReturned
}

// succeeded reports whether the run has ended as it should.
func (r Run) succeeded() bool {
	return r.Outcome == Committed || r.Outcome == Activated || r.Outcome == BootDefault
}

// String describes the run and its result.
func (r Run) String() string {
	what := string(r.Goal) + " to " + r.To
	switch {
	case r.Alive && r.Armed > 0:
		return fmt.Sprintf("%s: running, and rolls back in %s unless it is confirmed", what, r.Remaining)
	case r.Alive:
		return what + ": running"
	case r.Rebooted:
		return what + ": interrupted by a reboot"
	}
	why := reasonTexts[r.Reason]
	switch {
	case r.succeeded():
		return what + ": done"
	case r.Outcome == RolledBack:
		return fmt.Sprintf("%s: rolled back to %s: %s", what, r.From, why)
	case r.Outcome == RollbackFailed:
		return fmt.Sprintf("%s: rollback to %s failed: %s", what, r.From, r.Reason)
	}
	return what + ": failed: " + why
}
