package player

import (
	"context"
	"fmt"
	"io"
	"time"
)

// CommandTimeout is the time limit of commands that answer at once.
const CommandTimeout = time.Minute

// Shell runs commands on one node of a cluster.
type Shell struct {
	RunOn  func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error)
	Node   string // empty: the hive has no such node
	Engine string // the engine and the role of the node, for the error if there is none
	Role   string
}

// Run runs a command, at most for CommandTimeout.
func (s Shell) Run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	return s.RunLong(ctx, stdin, argv...)
}

// longTimeout is the time limit of commands that run as long as a trial.
const longTimeout = 24 * time.Hour

// RunLong runs a command until ctx ends, at most for a day.
func (s Shell) RunLong(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	if s.Node == "" {
		return nil, fmt.Errorf("%s: the hive has no node with the role %s", s.Engine, s.Role)
	}
	return s.RunOn(ctx, s.Node, stdin, argv...)
}
