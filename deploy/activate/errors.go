package activate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// NotNixOSError means that the node does not run NixOS.
type NotNixOSError struct{ Node string }

func (e *NotNixOSError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NotNixOSError) OnNode() (node, text string) {
	return e.Node, "not a NixOS system: it has no /etc/NIXOS"
}

// Kind implements [failure.Classified].
func (e *NotNixOSError) Kind() failure.Kind { return failure.Activation }

// NotSystemError means that a path is not a NixOS system or is not in the node's store, or that the
// system does not have the requested specialisation.
type NotSystemError struct {
	Node, Path, Specialisation string
	Has                        []string // the specialisations of the system
}

func (e *NotSystemError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NotSystemError) OnNode() (node, text string) {
	if e.Specialisation != "" {
		has := "it has none"
		if len(e.Has) > 0 {
			has = "it has " + strings.Join(e.Has, ", ")
		}
		return e.Node, fmt.Sprintf("%s has no specialisation %s: %s", e.Path, e.Specialisation, has)
	}
	return e.Node, fmt.Sprintf("%s is no NixOS system in the node's store: it has no bin/switch-to-configuration", e.Path)
}

// NoStorePathError means that the node's nixos-rebuild has no option --store-path.
type NoStorePathError struct{ Node string }

func (e *NoStorePathError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NoStorePathError) OnNode() (node, text string) {
	return e.Node, "the node has no nixos-rebuild with --store-path: deploy without --activator nixos-rebuild"
}

// UnknownProfileError means that the node runs or boots a system that was not deployed by nixbench.
type UnknownProfileError struct{ Node, Path string }

// Hint returns what the user can do.
func (e *UnknownProfileError) Hint() string {
	return "another user or tool has deployed it; to replace it, pass --force-replace-unknown-profiles, or set deployment.replaceUnknownProfiles"
}

func (e *UnknownProfileError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *UnknownProfileError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("the node has %s, which was not deployed from here, and deployment.replaceUnknownProfiles is false", e.Path)
}

// BusyError means that another client's run is active on the node.
type BusyError struct {
	Node string
	Run  *Run // the activation of the other client, or nil if it could not be inspected
}

func (e *BusyError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *BusyError) OnNode() (node, text string) {
	if e.Run == nil {
		return e.Node, "another run is switching the node"
	}
	return e.Node, fmt.Sprintf("run %s is switching the node to %s", e.Run.ID, e.Run.To)
}

// Kind implements [failure.Classified].
func (e *BusyError) Kind() failure.Kind { return failure.Activation }

// stepError is an error with the name of the node and the step that failed on it.
type stepError struct {
	node, step string
	err        error
}

func (e *stepError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *stepError) OnNode() (node, text string) {
	return e.node, e.step + ": " + failure.TextOn(e.node, e.err)
}

func (e *stepError) Unwrap() error { return e.err }

// LostSightError means that the result of an activation is unknown, because the node cannot be reached.
type LostSightError struct {
	Node, Path string
	Armed      time.Duration // the node rolls back after this time without a confirmation; 0: no rollback
	Err        error
}

func (e *LostSightError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *LostSightError) OnNode() (node, text string) {
	why := failure.TextOn(e.Node, e.Err)
	if s, ok := e.Err.(*stepError); ok { // the text names the step already
		why = failure.TextOn(e.Node, s.err)
	}
	if e.Armed == 0 {
		return e.Node, fmt.Sprintf("the result of the switch to %s is unknown, and the switch continues on the node: %s", e.Path, why)
	}
	if isDown(e.Err) {
		return e.Node, fmt.Sprintf("could not confirm the switch to %s: %s; it boots its previous system", e.Path, why)
	}
	return e.Node, fmt.Sprintf("could not confirm the switch to %s; the node rolls back automatically, at the latest %s after the switch: %s",
		e.Path, e.Armed, why)
}

// Kind implements [failure.Classified].
func (e *LostSightError) Kind() failure.Kind { return failure.Lost }

// Brief returns what is known about the activation on the node, in one line.
func (e *LostSightError) Brief() string {
	if e.Armed == 0 {
		return "result unknown: the switch continues on the node"
	}
	if isDown(e.Err) {
		return "not confirmed: its machine is off"
	}
	return fmt.Sprintf("not confirmed: rolls back automatically, %s after the switch", e.Armed)
}

// isDown reports whether err says that the node cannot be reached because its machine does not run, for example because it is shut
// off.
func isDown(err error) bool {
	var unreachable *remote.UnreachableError
	return errors.As(err, &unreachable) && unreachable.Down != ""
}

func (e *LostSightError) Unwrap() error { return e.Err }

// FailedError means that an activation has ended and the node has not reached the goal, such as running the new system.
type FailedError struct {
	Node     string
	Request  Request
	Result   Result
	Reason   string
	Jobs     string   // the systemd jobs that were running when the switch hung
	Users    []string // the users whose activation failed
	From     string   // the system that the node ran before
	Restored string   // what differed after the rollback (sshd, a route, the firewall), and what the node did to restore it; sh/reach.sh
	ByItself bool     // the node has rolled back by itself, for example because no client confirmed the switch
}

// Hint returns how to deploy the system, if a pre-switch check says that the system can only be activated by a reboot.
func (e *FailedError) Hint() string {
	if e.Reason != reasonRefused || e.failedCheck() != inhibitorCheck {
		return ""
	}
	return fmt.Sprintf("the new system changes components that only a reboot can replace: nixbench apply boot --on %s, and then nixbench reboot --on %[1]s", e.Node)
}

// inhibitorCheck is NixOS' pre-switch check of the option system.switch.inhibitors. It does not refuse the goal boot.
const inhibitorCheck = "switchInhibitors"

// failedCheck returns the name of the pre-switch check that failed, or an empty string.
func (e *FailedError) failedCheck() string {
	for _, line := range slices.Backward(e.Result.Log) {
		if name, ok := strings.CutPrefix(line, "Pre-switch check '"); ok {
			if name, ok = strings.CutSuffix(name, "' failed"); ok {
				return name
			}
		}
	}
	return ""
}

func (e *FailedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *FailedError) OnNode() (node, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s: %s", e.Request.Goal, e.Request.Path, e.describeCause())
	switch e.Result.Outcome {
	case RolledBack:
		fmt.Fprintf(&b, "; the node rolled back to %s", e.From)
		if e.ByItself {
			b.WriteString(" automatically")
		}
	case RollbackFailed:
		fmt.Fprintf(&b, "; rollback to %s FAILED: check the node", e.From)
	default:
		if e.From == "" && e.Request.Goal != Boot {
			b.WriteString("; there is no system to roll back to")
		} else if e.Result.After.Current != e.From {
			b.WriteString("; it was not rolled back")
		}
	}
	if e.Restored != "" {
		fmt.Fprintf(&b, "; the rollback did not restore %s", e.Restored)
	}
	for _, unit := range e.Result.Broken {
		fmt.Fprintf(&b, "\n%s:", unit)
		for _, line := range e.Result.Logs[unit] {
			b.WriteString("\n  " + line)
		}
	}
	if len(e.Result.Broken) == 0 && e.Reason != reasonUnconfirmed && e.Reason != reasonAborted {
		lines := 10
		if e.Reason == reasonRefused {
			lines = tailLines // the output of the checks
		}
		for _, line := range e.Result.Log[max(0, len(e.Result.Log)-lines):] {
			b.WriteString("\n  " + line)
		}
	}
	return e.Node, b.String()
}

// Brief returns the cause of the failure in one line.
func (e *FailedError) Brief() string { return e.describeCause() }

// describeCause returns why the activation failed, in one line: `unit nginx.service failed`.
func (e *FailedError) describeCause() string {
	exit := e.Result.Exit
	switch reason, _, _ := strings.Cut(e.Reason, ","); reason {
	case reasonPrepare:
		return "the new system's step before the switch failed" + formatExit(exit)
	case reasonRefused:
		return fmt.Sprintf("the pre-switch check %s of the new system failed, and nothing was changed", cmp.Or(e.failedCheck(), "(unnamed)")) + formatExit(exit)
	case reasonHung:
		patience := e.Request.Confirm
		if patience == 0 {
			patience = unarmedPatience
		}
		s := fmt.Sprintf("no progress for %s", patience)
		if e.Jobs != "" {
			s += " (" + e.Jobs + ")"
		}
		return s + ": a slow switch needs a longer --confirm-timeout"
	case reasonUnconfirmed:
		return fmt.Sprintf("no client could log in to confirm it within %s", e.Request.Confirm)
	case reasonAborted:
		return "it was aborted"
	case reasonKilled:
		return "the switch was killed on the node"
	case reasonLocked:
		return "another switch is running on the node (exit 11): try again when it is done"
	case reasonRebooted:
		return "the node rebooted before it was confirmed"
	case reasonReboot:
		return "it needs a reboot (exit 100): use the goal boot, then reboot"
	case reasonProfile:
		return "the profile could not be set"
	case reasonBoot:
		return "the boot loader could not be installed" + formatExit(exit)
	case "elsewhere":
		return fmt.Sprintf("the switch succeeded, but the node runs %s and would boot %s", e.Result.After.Current, e.Result.After.Profile)
	}
	late := ""
	if e.Reason == reasonLate {
		late = " soon after the switch"
		exit = 0
	}
	switch {
	case len(e.Users) > 0 && len(e.Result.Broken) == 0:
		return fmt.Sprintf("the activation of these users failed: %s", strings.Join(e.Users, ", ")) + formatExit(exit)
	case len(e.Result.Broken) == 1:
		return "unit " + e.Result.Broken[0] + " failed" + late + formatExit(exit)
	case len(e.Result.Broken) > 1:
		return fmt.Sprintf("%d units failed%s: %s%s", len(e.Result.Broken), late, strings.Join(e.Result.Broken, ", "), formatExit(exit))
	case exit == 2:
		return "the activation script failed (exit 2)"
	case exit == 4:
		return "units failed (exit 4)"
	case exit < 0:
		return "the switch did not start or was killed"
	}
	return fmt.Sprintf("switch-to-configuration failed (exit %d)", exit)
}

func formatExit(exit int) string {
	if exit <= 0 {
		return ""
	}
	return fmt.Sprintf(" (exit %d)", exit)
}
