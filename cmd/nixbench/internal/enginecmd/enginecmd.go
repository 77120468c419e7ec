// Package enginecmd is the interface between nixbench's command line and commands that only one engine has, such
// as kubeconfig. Such commands are in a package per engine, so that the packages of the engines do not depend on the
// command line. The table of engines in package main contains a function of the type [Commands] for each engine that
// has commands.
package enginecmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Commands returns the commands of one engine. Their functions use program only while a command runs.
type Commands func(program Program) []*cobra.Command

// Program is the command line of nixbench.
type Program interface {
	// Body converts the code of a command to the function that cobra calls. An error of body ends nixbench, which
	// shows the error. The context ends when the user interrupts nixbench.
	Body(body func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error
	// OpenCluster evaluates the hive that the flags select, and returns its cluster of the given kind. It returns a
	// usage error, which names the command, if no node of the hive belongs to such a cluster. If acceptNewHostKeys is
	// set, connections to nodes accept and store host keys that known_hosts does not contain.
	OpenCluster(command string, kind engine.Kind, acceptNewHostKeys bool) (*Cluster, error)
	// View returns the output of nixbench. It is called only in the body of a command.
	View() View
}

// View is the output of nixbench.
type View interface {
	// Note shows a message for the user.
	Note(text string)
	// Result writes the result of the command: value with --json, otherwise what human writes.
	Result(value any, human func(io.Writer))
	// Pause calls f and writes nothing until f returns, so that f may use the terminal.
	Pause(f func())
	// JSON reports whether the output is a stream of JSON objects.
	JSON() bool
}

// Cluster is the cluster of a hive, with connections to its nodes.
type Cluster struct {
	engine.Cluster
	Hive  *nixeval.Hive
	Fleet *fleet.Fleet
	Dir   state.Dir
}

// Close closes the connections to the nodes.
func (c *Cluster) Close() { c.Fleet.Close() }

// UsageError returns an error for a command line that is not valid.
func UsageError(format string, args ...any) error {
	return failure.WithKind(failure.Usage, fmt.Errorf(format, args...))
}

// ExitError is returned by a command that has run another program in its place: nixbench ends with the exit code
// of that program, and shows no error, because the program has shown its own.
type ExitError struct {
	Program string
	Code    int
}

func (e *ExitError) Error() string { return fmt.Sprintf("%s: exit status %d", e.Program, e.Code) }

// Kind implements [failure.Classified].
func (e *ExitError) Kind() failure.Kind { return failure.Command }
