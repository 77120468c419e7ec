package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// PollInterval is the time between two questions to the batch system while nixbench waits.
const PollInterval = 300 * time.Millisecond

const readyTimeout = 5 * time.Minute

// Sleep waits for the duration d and returns true. It returns false at once when the context ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitReady waits until check returns nil: until a node works after a change. It reports the reason whenever it changes. If
// the node does not work within five minutes, WaitReady returns a [NotReadyError] with what readLog returns.
func WaitReady(ctx context.Context, node string, check func(context.Context) error, readLog func(context.Context) string, report engine.Report) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	reported := ""
	for {
		now := check(ctx)
		if now == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil { // after the deadline, an error would only report the time limit
			missing = now
		}
		if text := LastLine(missing); text != reported && (ctx.Err() == nil || reported == "") {
			reported = text
			report(node, "waits: "+text)
		}
		if !Sleep(ctx, PollInterval) {
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return &NotReadyError{Node: node, After: time.Since(begin), Missing: missing, Log: readLog(context.WithoutCancel(ctx))}
			}
			return context.Cause(ctx)
		}
	}
}

// NotReadyError is returned if a node does not work in the batch system after a change of the node.
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
