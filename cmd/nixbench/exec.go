package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

const execLong = `Run a command on nodes, on all of them at the same time, and print its output
with the name of the node before each line. With one selected node, the output
is printed unchanged.

The words of the command are joined with spaces, and the login shell of the user
on the node interprets the line. Quote what your own shell must not interpret:

  nixbench exec --on @web -- 'journalctl -u nginx | tail -n 3'

The exit code is the highest exit status of the command on any node, or 6 if a
node cannot be reached. A command that was ended by a signal has the exit status
128 plus the signal's number.`

type execFlags struct {
	fleetFlags
	root, literal bool
}

func execCommand(a *app) *cobra.Command {
	var flags execFlags
	cmd := &cobra.Command{
		Use:   "exec [--on NODES] [--] COMMAND [ARGUMENT…]",
		Short: "Run a command on nodes",
		Long:  execLong,
		Example: `  nixbench exec -- uptime
  nixbench exec --on 'web-*' --root -- systemctl restart nginx`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error { return runExec(a, args, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.SetInterspersed(false) // flags after COMMAND are its arguments
	flags.addWithParallel(f, 0)
	f.BoolVar(&flags.root, "root", false, "run it as root, with deployment.privilegeEscalationCommand if the user is not root")
	f.BoolVar(&flags.literal, "literal", false, "run a program with exactly these arguments, without a shell")
	return cmd
}

func runExec(a *app, args []string, flags execFlags) error {
	s, err := a.openNodes(flags.fleetFlags, deploy.RemoteNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	command := newExecCommand(args, flags)
	run := runWithPrefix
	if len(s.Nodes) == 1 && !a.json {
		run = runUnprefixed
	}
	return joinExitErrors(s.RunOnNodes(a.ctx, func(ctx context.Context, h *remote.Host, n nixeval.Node) error {
		return run(ctx, a.view, h, n, command)
	}))
}

// newExecCommand returns the command that exec runs on every node. With --literal, this is args. Otherwise it is the login shell
// (which sshd sets as SHELL) with the joined args as one command line.
func newExecCommand(args []string, flags execFlags) remote.Cmd {
	c := remote.Cmd{Argv: args, Sudo: flags.root, Unlimited: true}
	if !flags.literal {
		c.Name = strings.Join(args, " ")
		c.Argv = []string{"sh", "-c", `exec "${SHELL:-sh}" -c "$1"`, "sh", c.Name}
	}
	return c
}

// runWithPrefix runs the command on a node, and prints each line of its output with the node's name.
func runWithPrefix(ctx context.Context, view *ui.View, h *remote.Host, n nixeval.Node, c remote.Cmd) error {
	out := &remote.Lines{Each: func(line string, _ bool) { view.Output(n.Name, line) }, Err: view.Err}
	c.Stdout, c.Stderr = out, out
	defer out.Flush()
	return h.Run(ctx, c)
}

// runUnprefixed runs the command on a node, and prints its output unchanged, without the node's name.
func runUnprefixed(ctx context.Context, view *ui.View, h *remote.Host, _ nixeval.Node, c remote.Cmd) error {
	c.Stdout, c.Stderr = view.Raw()
	return h.Run(ctx, c)
}

// execError means that the command has failed on some nodes. code is the highest of its exit statuses.
type execError struct {
	code  int
	nodes []string
}

func (e *execError) Error() string {
	return fmt.Sprintf("the command failed on %s", strings.Join(e.nodes, ", "))
}

// Kind implements [failure.Classified].
func (e *execError) Kind() failure.Kind { return failure.Command }

// joinExitErrors joins the errors of all nodes. The nodes on which the command has failed become one [execError].
func joinExitErrors(results []fleet.Outcome[int]) error {
	var errs []error
	worst := &execError{}
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		} else if r.Value != 0 {
			worst.code = max(worst.code, r.Value)
			worst.nodes = append(worst.nodes, fmt.Sprintf("%s (%d)", r.Node.Name, r.Value))
		}
	}
	if worst.code != 0 {
		errs = append(errs, worst)
	}
	return errors.Join(errs...)
}
