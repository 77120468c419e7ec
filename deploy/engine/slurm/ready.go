package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// WaitReady implements [engine.Engine]. A compute node is ready when its slurmd has registered since its last
// start; the controller, when slurmctld answers; the node with slurmdbd, when slurmdbd answers.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	reported := ""
	for {
		now := e.checkReady(ctx, name)
		if now == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil { // after the deadline, an error would only report the time limit
			missing = now
		}
		if text := lastLine(missing); text != reported && (ctx.Err() == nil || reported == "") {
			reported = text
			report(name, "waits: "+text)
		}
		if !sleep(ctx, pollInterval) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return e.newNotReadyError(ctx, name, time.Since(begin), missing)
			}
			return context.Cause(ctx)
		}
	}
}

// checkReady returns nil if a member works, and for a node that does not belong to the cluster. Otherwise the
// error is the reason why the member does not work.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	if slices.Contains(e.nodesOf(Accounting), name) {
		return e.checkUnit(ctx, name, accountingUnit)
	}
	nodes, err := e.listNodes(ctx)
	n, isMember := nodes[name]
	switch {
	case err != nil:
		return err
	case name == e.controller():
		return nil
	case !isMember && !slices.Contains(e.nodesOf(Compute), name):
		return nil
	case !isMember:
		return errors.New("it has not registered with the controller")
	case !n.isReady():
		return errors.New("it is " + n.describe())
	}
	return e.checkRegistered(ctx, name, n)
}

// checkRegistered returns an error unless slurmd of the node runs and has registered since its start. The
// controller reports a node as idle for minutes after its slurmd has died. Both times are from the clock of the
// node.
func (e *Engine) checkRegistered(ctx context.Context, name string, n node) error {
	unit, err := e.readUnit(ctx, name, "slurmd.service")
	switch {
	case err != nil:
		return err
	case unit.state != "running":
		return fmt.Errorf("its slurmd is %s", unit.state)
	}
	if start, known := n.slurmdStart(); !known || start.Before(unit.since) {
		return errors.New("its slurmd has not registered since it was started")
	}
	return nil
}

// unitState is the state of a systemd unit.
type unitState struct {
	state string    // the sub-state, such as running, auto-restart or dead
	since time.Time // when the unit became active; in whole seconds
}

// readUnit returns the state of a unit on a node.
func (e *Engine) readUnit(ctx context.Context, node, unit string) (unitState, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--timestamp=unix", "--property=SubState,ActiveEnterTimestamp", unit)
	if err != nil {
		return unitState{}, err
	}
	var u unitState
	for line := range strings.Lines(string(out)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "SubState":
			u.state = value
		case "ActiveEnterTimestamp":
			seconds, _ := strconv.ParseInt(strings.TrimPrefix(value, "@"), 10, 64) // empty for a unit that was never active
			u.since = time.Unix(seconds, 0)
		}
	}
	return u, nil
}

// Inspect implements [engine.Inspector]: it checks that SLURM's daemon runs on the node.
func (e *Engine) Inspect(ctx context.Context, name string) error {
	unit := e.unitOf(name)
	if unit == "" {
		return nil
	}
	return e.checkUnit(ctx, name, unit)
}

// checkUnit returns an error unless a unit on a node runs. The error contains the last line of the unit's log.
func (e *Engine) checkUnit(ctx context.Context, node, unit string) error {
	u, err := e.readUnit(ctx, node, unit)
	if err != nil || u.state == "running" {
		return err
	}
	err = fmt.Errorf("%s is %s", unit, u.state)
	if log := e.readLog(ctx, node, unit, 1); log != "" {
		err = fmt.Errorf("%w: %s", err, log)
	}
	return err
}

// accountingUnit is active when slurmdbd answers.
const accountingUnit = "slurmdbd.service"

// unitOf returns the unit of SLURM's daemon on a node of the hive.
func (e *Engine) unitOf(name string) string {
	switch {
	case slices.Contains(e.nodesOf(Controller), name):
		return "slurmctld.service"
	case slices.Contains(e.nodesOf(Compute), name):
		return "slurmd.service"
	case slices.Contains(e.nodesOf(Accounting), name):
		return accountingUnit
	}
	return ""
}

// readLog returns the last lines of a unit's log on a node, or an empty string.
func (e *Engine) readLog(ctx context.Context, node, unit string, lines int) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "journalctl", "--no-pager", "--quiet", "--output=cat", "--lines="+strconv.Itoa(lines), "--unit="+unit)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// newNotReadyError returns a NotReadyError with the last log lines of the node.
func (e *Engine) newNotReadyError(ctx context.Context, name string, after time.Duration, missing error) error {
	return &NotReadyError{Node: name, After: after, Missing: missing, Log: e.readLog(context.WithoutCancel(ctx), name, e.unitOf(name), logLines)}
}

// NotReadyError is returned if a node does not work in the cluster after a change of the node.
type NotReadyError struct {
	Node    string
	After   time.Duration // the time of the wait
	Missing error         // why the node is not ready
	Log     string        // the last lines of its daemon's log; may be empty
}

func (e *NotReadyError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NotReadyError) OnNode() (node, text string) {
	text = fmt.Sprintf("not ready after %v, so it is not uncordoned: %v", e.After.Round(time.Second), e.Missing)
	if e.Log != "" {
		text += "\n" + e.Log
	}
	return e.Node, text
}

func (e *NotReadyError) Unwrap() error { return e.Missing }

// Hint returns the commands that repair the node.
func (e *NotReadyError) Hint() string {
	return fmt.Sprintf("fix the hive and run nixbench apply again, or roll back: nixbench rollback --on %s", e.Node)
}
