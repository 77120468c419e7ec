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

// NewNotNixOSError returns the error for a node that does not run NixOS.
func NewNotNixOSError(node string) error {
	return failure.On(node, failure.WithKind(failure.Activation, errors.New("not a NixOS system: it has no /etc/NIXOS")))
}

// NotSystemError means that a path is not a NixOS system or is not in the node's store, or that the
// system does not have the requested specialisation.
type NotSystemError struct{ failure.About }

func newNotSystemError(node string, r Request, specialisations []string) error {
	text := r.Path + " is no NixOS system in the node's store: it has no bin/switch-to-configuration"
	if r.Specialisation != "" {
		text = fmt.Sprintf("%s has no specialisation %s: it has %s", r.Path, r.Specialisation, cmp.Or(strings.Join(specialisations, ", "), "none"))
	}
	return &NotSystemError{failure.About{Node: node, Text: text}}
}

// UnknownProfileError means that the node runs or boots a system, Path, that was not deployed by nixbench.
type UnknownProfileError struct {
	failure.About
	Path string
}

func newUnknownProfileError(node, path string) error {
	return &UnknownProfileError{failure.About{Node: node,
		Text:   fmt.Sprintf("the node has %s, which was not deployed from here, and deployment.replaceUnknownProfiles is false", path),
		Advice: "another user or tool has deployed it; to replace it, pass --force-replace-unknown-profiles, or set deployment.replaceUnknownProfiles",
	}, path}
}

// BusyError means that another client's run is active on the node.
type BusyError struct{ failure.About }

// newBusyError returns a BusyError. run is the activation of the other client, or nil if it could not be inspected.
func newBusyError(node string, run *Run) error {
	text := "another run is switching the node"
	if run != nil {
		text = fmt.Sprintf("run %s is switching the node to %s", run.ID, run.To)
	}
	return &BusyError{failure.About{Node: node, Text: text}}
}

func (*BusyError) Kind() failure.Kind { return failure.Activation }

// newStepError returns an error with the name of the node and the step that failed on it.
func newStepError(node, step string, err error) error {
	return &failure.About{Node: node, Text: step + ": " + failure.TextOn(node, err), Err: err}
}

// LostSightError means that the result of an activation is unknown, because the node cannot be reached.
type LostSightError struct {
	failure.About
	brief string
}

// newLostSightError returns a LostSightError for the switch to a system. The node rolls back without a confirmation after the time
// armed; if armed is 0, it does not roll back. left is the rest of this time if the node already waits for the confirmation, or 0.
func newLostSightError(node, path string, armed, left time.Duration, err error) error {
	e := &LostSightError{About: failure.About{Node: node, Err: err}}
	why := strings.TrimPrefix(failure.TextOn(node, err), stepActivate+": ") // the texts name the step already
	switch {
	case armed == 0:
		e.brief = "result unknown: the switch continues on the node"
		e.Text = fmt.Sprintf("the result of the switch to %s is unknown, and the switch continues on the node: %s", path, why)
	case isDown(err):
		e.brief = "not confirmed: its machine is off"
		e.Text = fmt.Sprintf("could not confirm the switch to %s: %s; it boots its previous system", path, why)
	default:
		when := fmt.Sprintf("%s after the switch", armed)
		if left = left.Round(time.Second); left > 0 {
			when = fmt.Sprintf("in %s", left)
		}
		e.brief = fmt.Sprintf("rolls back %s unless confirmed", when)
		e.Text = fmt.Sprintf("could not confirm the switch to %s; the node rolls back %s unless it is confirmed: %s", path, when, why)
	}
	return e
}

func (*LostSightError) Kind() failure.Kind { return failure.Lost }

// Brief returns what is known about the activation on the node, in one line.
func (e *LostSightError) Brief() string { return e.brief }

// isDown reports whether err says that the node cannot be reached because its machine does not run, for example because it is shut
// off.
func isDown(err error) bool {
	var unreachable *remote.UnreachableError
	return errors.As(err, &unreachable) && unreachable.Down != ""
}

// FailedError means that an activation has ended and the node has not reached the goal, such as running the new system.
type FailedError struct {
	Node      string
	Request   Request
	Result    Result
	Run             // the node's record of the activation
	Unhealthy error // the health checks that have not passed, because of which nixbench has aborted the activation, or nil
}

func (e *FailedError) Error() string { return failure.Message(e) }

func (e *FailedError) OnNode() (node, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s: %s", e.Request.Goal, e.Request.Path, e.Brief())
	switch {
	case e.Result.Outcome == RolledBack:
		b.WriteString("; the node rolled back to " + e.From)
		if slices.Contains([]string{reasonUnconfirmed, reasonKilled, reasonRebooted}, e.Reason) {
			b.WriteString(" automatically")
		}
	case e.Result.Outcome == RollbackFailed:
		fmt.Fprintf(&b, "; rollback to %s FAILED: check the node", e.From)
	case e.From == "" && e.Request.Goal != Boot:
		b.WriteString("; there is no system to roll back to")
	case e.Result.After.Current != e.From:
		b.WriteString("; it was not rolled back")
	}
	if e.restored != "" {
		fmt.Fprintf(&b, "; the rollback did not restore %s", e.restored)
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

// Brief returns why the activation failed, in one line: `unit nginx.service failed`.
func (e *FailedError) Brief() string {
	if e.Unhealthy != nil {
		return e.Unhealthy.Error()
	}
	exit, late := "", ""
	if e.Result.Exit > 0 {
		exit = fmt.Sprintf(" (exit %d)", e.Result.Exit)
	}
	reason, _, _ := strings.Cut(e.Reason, ",")
	switch reason {
	case reasonHung:
		jobs := ""
		if e.jobs != "" {
			jobs = " (" + strings.TrimSuffix(strings.TrimSpace(e.jobs), ",") + ")"
		}
		return fmt.Sprintf("no progress for %s%s: a slow switch needs a longer --timeout confirm=DURATION", cmp.Or(e.Request.Confirm, unarmedPatience), jobs)
	case reasonUnconfirmed:
		return fmt.Sprintf("no client could log in to confirm it within %s", e.Request.Confirm)
	case reasonRefused, reasonPrepare, reasonBoot:
		return reasonTexts[reason] + exit
	case reasonElsewhere:
		return fmt.Sprintf("the switch succeeded, but the node runs %s and would boot %s", e.Result.After.Current, e.Result.After.Profile)
	case reasonSwitch:
	case reasonLate:
		late = " soon after the switch"
	default:
		if text := reasonTexts[reason]; text != "" {
			return text
		}
	}
	switch {
	case len(e.users) > 0 && len(e.Result.Broken) == 0:
		return "the activation of these users failed: " + strings.Join(e.users, ", ") + exit
	case len(e.Result.Broken) == 1:
		return "unit " + e.Result.Broken[0] + " failed" + late
	case len(e.Result.Broken) > 1:
		return fmt.Sprintf("%d units failed%s: %s", len(e.Result.Broken), late, strings.Join(e.Result.Broken, ", "))
	case e.Result.Exit == 2:
		return "the activation script failed (exit 2)"
	case e.Result.Exit == 4:
		return "units failed (exit 4)"
	case e.Result.Exit < 0:
		return "the switch did not start or was killed"
	}
	return "switch-to-configuration failed" + exit
}
