package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

const execLong = `Run a command on nodes in parallel, and print its output with the name of the node before
each line.

The command is a program with its arguments. For pipes and other shell syntax, run a
shell:

  nixbench exec --on @web -- sh -c 'journalctl -u nginx | tail -n 3'

The exit code is the highest exit status of the command on any node, or 6 if a node cannot
be reached. A command that was ended by a signal has the exit status 128 plus the signal's
number, as in a shell.`

func (a *app) execCommand() *cobra.Command {
	var flags fleetFlags
	var sudo bool
	cmd := &cobra.Command{
		Use:   "exec [--on NODES] [--] COMMAND [ARGUMENT…]",
		Short: "Run a command on nodes",
		Long:  execLong,
		Example: `  nixbench exec -- uptime
  nixbench exec --on 'web-*' --root -- systemctl restart nginx`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		_, hive, nodes, err := a.loadNodes(flags.on)
		if err != nil {
			return err
		}
		if nodes, err = a.selectRemoteNodes(hive, nodes, flags.on); err != nil {
			return err
		}
		hosts := a.newFleet(hive, flags, nil)
		defer hosts.Close()
		results := fleet.Each(a.ctx, nodes, flags.parallel, func(ctx context.Context, n nixeval.Node) (int, error) {
			return a.runOnNode(ctx, hosts, n, remote.Cmd{Argv: args, Sudo: sudo})
		})
		return joinExitErrors(results)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.SetInterspersed(false) // flags after COMMAND are its arguments
	flags.add(f)
	f.BoolVar(&sudo, "root", false, "run it as root, with deployment.privilegeEscalationCommand if the user is not root")
	return cmd
}

// runOnNode runs the command on one node, shows its output, and returns its exit status as a shell
// reports it.
func (a *app) runOnNode(ctx context.Context, hosts *fleet.Fleet, n nixeval.Node, c remote.Cmd) (int, error) {
	h, err := hosts.Host(ctx, n)
	if err != nil {
		return 0, err
	}
	out := &remote.Lines{Each: func(line string, _ bool) { a.view.Output(n.Name, line) }}
	c.Stdout, c.Stderr = out, out
	err = h.Run(ctx, c)
	out.Flush()
	var failed *remote.RunError
	if errors.As(err, &failed) {
		return failed.ShellStatus(), nil
	}
	return 0, err
}

// execError means that the command failed on nodes. code is the highest exit status.
type execError struct {
	code  int
	nodes []string
}

func (e *execError) Error() string {
	return fmt.Sprintf("the command failed on %s", strings.Join(e.nodes, ", "))
}

// Kind implements [failure.Classified].
func (e *execError) Kind() failure.Kind { return failure.Command }

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
