package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/failure"
)

const (
	// PollInterval is the time between two requests to a cluster or a node while nixbench waits.
	PollInterval = 300 * time.Millisecond
	// CommandTimeout is the time limit of a command on a node.
	CommandTimeout = 20 * time.Second
	readyTimeout   = 5 * time.Minute
)

// Sleep waits for the duration d and returns true. It returns false at once when the context ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Retry calls f, again and again with a pause, until f returns nil or an error that is not temporary, or until the time limit is over or
// ctx ends. It returns the last error of f. If isTemporary is nil, all errors are.
func Retry(ctx context.Context, limit time.Duration, isTemporary func(error) bool, f func() error) error {
	for end := time.Now().Add(limit); ; {
		err := f()
		if err == nil || isTemporary != nil && !isTemporary(err) || time.Now().After(end) || !Sleep(ctx, PollInterval) {
			return err
		}
	}
}

// AwaitReady waits until probe returns nil, which means that a node works after a change. It reports each new error of probe. If the node
// does not work within five minutes, AwaitReady returns a [NotReadyError] with the log lines that readLog returns.
func AwaitReady(ctx context.Context, node string, report Report, probe func(context.Context) error, readLog func(context.Context) string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	var missing error
	reported := ""
	err := check.Until(ctx, check.Condition{Every: PollInterval, Limit: readyTimeout, Probe: probe}, func(err error) {
		missing = err
		if text := LastLine(err).Error(); text != reported {
			reported = text
			report(node, "waits: "+text)
		}
	})
	switch {
	case err == nil:
		return nil
	case !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return context.Cause(ctx)
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), CommandTimeout)
	defer stop()
	text := fmt.Sprintf("not ready after %v, so it is not uncordoned: %v\n%s", time.Since(begin).Round(time.Second), missing, readLog(late))
	return &NotReadyError{failure.About{Node: node, Text: strings.TrimSuffix(text, "\n"), Err: missing, Advice: fmt.Sprintf(
		"fix the hive and run nixbench apply again, or roll back: nixbench rollback --on %s", node)}}
}

// NotReadyError is returned if a node does not work in the cluster after a change of the node. The message contains the last log
// lines of the programs on the node.
type NotReadyError struct{ failure.About }

// LastLine returns a new error with the last line of err, which contains the cause.
func LastLine(err error) error {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return errors.New(lines[len(lines)-1])
}
