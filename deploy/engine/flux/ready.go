package flux

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

// WaitReady implements [engine.Engine]. A node is ready when its broker runs and is online,
// and the leader also when the scheduler runs: until then it cannot be seen which queues are stopped.
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

// checkReady returns nil if a member works, and for a node that does not belong to the instance. Otherwise the error
// is the reason why the member does not work.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	inHive := name == e.leader() || slices.Contains(e.nodesOf(Compute), name)
	if inHive {
		// The leader may still report a broker that has just been stopped as online.
		if err := e.Inspect(ctx, name); err != nil {
			return err
		}
	}
	s, err := e.readStatus(ctx)
	n, configured := s.nodes[name]
	switch {
	case err != nil:
		return err
	case !configured && inHive:
		return errors.New("the running instance has no node of this name; the leader has not been changed yet")
	case !inHive && !n.drained:
		return nil
	case !n.isReady():
		return errors.New("it is " + n.describe())
	case name == e.leader() && slices.ContainsFunc(s.queues, func(q queue) bool { return q.reason == noScheduler }):
		return errors.New("the scheduler has not started")
	}
	return nil
}

// Inspect implements [engine.Inspector]: it checks that the broker runs on the node.
func (e *Engine) Inspect(ctx context.Context, name string) error {
	if name != e.leader() && !slices.Contains(e.nodesOf(Compute), name) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(limited, name, nil, "systemctl", "show", "--property=SubState", "--value", unit)
	state := strings.TrimSpace(string(out))
	if err != nil || state == "running" {
		return err
	}
	err = fmt.Errorf("%s is %s", unit, state)
	if log := e.readLog(ctx, name, 1); log != "" {
		err = fmt.Errorf("%w: %s", err, log)
	}
	return err
}

// unit is the systemd unit of the broker.
const unit = "flux.service"

// readLog returns the last lines of the broker's log on a node, or an empty string.
func (e *Engine) readLog(ctx context.Context, name string, lines int) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, name, nil, "journalctl", "--no-pager", "--quiet", "--output=cat", "--lines="+strconv.Itoa(lines), "--identifier=flux")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

const logLines = 10

// newNotReadyError returns a NotReadyError with the last log lines of the node.
func (e *Engine) newNotReadyError(ctx context.Context, name string, after time.Duration, missing error) error {
	return &NotReadyError{Node: name, After: after, Missing: missing, Log: e.readLog(context.WithoutCancel(ctx), name, logLines)}
}

// NotReadyError is returned if a node does not work in the instance after a change of the node.
type NotReadyError struct {
	Node    string
	After   time.Duration // the time of the wait
	Missing error         // why the node is not ready
	Log     string        // the last lines of its broker's log; may be empty
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
