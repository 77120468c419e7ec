package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
)

// newNotReadyError returns the error for a machine that was started and did not become ready. It adds the end of the machine's console log.
func (m *Task) newNotReadyError(ctx context.Context, waited time.Duration, err error) error {
	waited = min(waited.Round(time.Second), m.bootTimeLimit())
	e := &BootError{Node: m.Change.Node, Started: true, Within: waited, Err: err}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	e.Console, _ = m.host().ConsoleTail(ctx, m.plan.Cluster, m.Change.Node, 4000) // a kernel panic has about 3000 bytes
	return e
}

// BootError is the error of a machine that could not be created, started or removed, or did not become ready.
type BootError struct {
	Node    string
	Started bool          // the machine was started, and did not become ready
	Within  time.Duration // how long nixbench has waited for the machine to become ready
	Console string        // the end of the machine's console log
	Err     error
}

func (e *BootError) Error() string { return failure.Message(e) }

func (e *BootError) OnNode() (node, text string) {
	text = failure.TextOn(e.Node, e.Err)
	if e.Started {
		text = fmt.Sprintf("its machine was started, but is not ready after %s: %s", e.Within, text)
	}
	if tail := strings.TrimSpace(e.Console); tail != "" {
		text += "\nits console ends with:\n" + tail
	}
	return e.Node, text
}

// Brief formats the error in one line without the node's name.
func (e *BootError) Brief() string {
	text, _, _ := strings.Cut(failure.TextOn(e.Node, e), "\n")
	return text
}

func (e *BootError) Kind() failure.Kind { return failure.Provision }

func (e *BootError) Unwrap() error { return e.Err }

func (e *BootError) Hint() string {
	if hint := failure.Hint(e.Err); hint != "" {
		return hint
	}
	if e.Started {
		return "the next apply continues to wait; --timeout boot=DURATION sets a longer limit; to restart the machine: nixbench stop --force --on " + e.Node + ", then nixbench start"
	}
	return ""
}
