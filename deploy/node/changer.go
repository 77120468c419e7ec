// Package node changes one node: it inspects the node, copies a closure, uploads keys, activates a system, rolls back and reboots.
//
// [Changer.Deploy] is the whole deployment of a node. Every activation of a system calls [Changer.ApplySystem]:
// for a deployment, for a rollback, and to restore a node after a failed run.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Changer deploys, restores, rolls back and reboots nodes. It holds the connections, the state and the id of the run.
type Changer struct {
	Fleet     *fleet.Fleet
	Copier    *closure.Copier
	Uploader  *secrets.Uploader
	Activator *activate.Activator
	Store     *state.Store
	RunID     string
	Send      event.Sink
}

// Options are the options of a change of a node.
type Options struct {
	Goal                Goal
	Confirm             time.Duration // time to confirm before the node rolls back; 0: the rollback is not armed
	SettleTime          time.Duration // see activate.Request
	Specialisation      string
	ActivateWith        string // "" or activate.NixosRebuild
	ReplaceUnknown      bool   // overrides replaceUnknownProfiles of the hive
	WithoutHealthChecks bool   // deployment.healthChecks are not run
	RollbackAll         bool   // nodes keep a backup of the replaced keys, so that the whole run can be rolled back
}

// Inspect returns the state that a node reports. If a killed run has requested a reboot of the node, Inspect first waits until
// this reboot has ended.
func (c *Changer) Inspect(ctx context.Context, n nixeval.Node) (activate.Node, error) {
	return c.InspectWith(ctx, n, activate.Full)
}

// OnlyLogin is a detail for InspectWith, which then only connects to the node.
const OnlyLogin activate.Detail = "login"

// InspectWith is like Inspect, but reads only a part of the node's state.
func (c *Changer) InspectWith(ctx context.Context, n nixeval.Node, detail activate.Detail) (observed activate.Node, err error) {
	c.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Connect, Node: n.Name})
	h, err := c.Fleet.Host(ctx, n)
	if err == nil && c.Store.State().LastIntent(n.Name, state.RebootNode) != nil {
		if err = c.waitForPreviousReboot(ctx, n.Name, h); err == nil {
			h, err = c.Fleet.Host(ctx, n)
		}
	}
	switch {
	case err != nil:
	case detail == OnlyLogin:
		_, err = h.Conn(ctx)
	default:
		observed, err = c.Activator.Inspect(ctx, n.Name, h, detail)
	}
	c.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Connect, Node: n.Name, Failed: err != nil})
	return observed, err
}

// HasDeployment reports whether the node itself has a record of a deployment by nixbench.
func HasDeployment(n activate.Node) bool { return n.Last != nil || len(n.Deployed) > 0 }

// Goal is the last step that apply carries out, such as switch or push. Four of the goals are also an [activate.Goal].
type Goal string

const (
	Switch      = Goal(activate.Switch)
	Boot        = Goal(activate.Boot)
	Test        = Goal(activate.Test)
	DryActivate = Goal(activate.DryActivate)
	Push        = Goal("push")        // build and copy, without activation
	UploadKeys  = Goal("upload-keys") // upload only the keys; no system is evaluated
)

// Activates reports whether the goal activates a system or makes it the boot default.
func (g Goal) Activates() bool { return g == Switch || g == Boot || g == Test }

// ActivatesNow reports whether the goal activates systems during the run, and not at the next boot.
func (g Goal) ActivatesNow() bool { return g == Switch || g == Test }

// Describe returns the words for nodes with an outcome of a run with this goal, such as "with new keys". They follow a number.
func (g Goal) Describe(o state.Outcome) string {
	switch {
	case g == Push && o == state.Switched:
		return "copied"
	case g == UploadKeys && o == state.Switched:
		return "with new keys"
	case g == Boot && o == state.Switched:
		return "with new boot default"
	case g == DryActivate && o == state.Unchanged:
		return "looked at"
	}
	return string(o)
}

// formatActivation describes the changes of a successful activation.
func formatActivation(result activate.Result, before activate.Node) string {
	if !result.Changed {
		return "unchanged"
	}
	var text string
	switch result.Outcome {
	case activate.BootDefault:
		text = fmt.Sprintf("generation %d boots next", result.After.Generation)
		if result.After.Current == result.After.Profile {
			text = fmt.Sprintf("ran already; now it is generation %d", result.After.Generation)
		}
	case activate.Activated:
		text = "runs until the next boot"
	case activate.Committed:
		text = fmt.Sprintf("generation %d → %d", before.Generation, result.After.Generation)
		if before.Generation == 0 {
			text = fmt.Sprintf("generation %d, the first", result.After.Generation)
		}
	}
	if len(result.AlreadyFailing) > 0 {
		text += "; failed before, too: " + strings.Join(result.AlreadyFailing, ", ")
	}
	if result.RebootNeeded() {
		text += "; reboot for the new kernel"
	}
	return text
}

// formatDryActivation describes which systemd units a switch would change.
func formatDryActivation(result activate.Result) string {
	text := "would " + cmp.Or(strings.Join(result.Dry, "; "), "change no unit")
	var unknown *activate.UnknownProfileError
	if errors.As(result.Refused, &unknown) {
		text += "; but apply would refuse to replace " + unknown.Path + ", which was not deployed from here"
	}
	return text
}
