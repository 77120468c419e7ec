package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/lines"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

func execCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var root, literal bool
	cmd := &cobra.Command{
		Use:   "exec [--on NODES] [--] COMMAND [ARGUMENT…]",
		Short: "Run a command on nodes",
		Long: `Run a command on nodes, on all of them at the same time, and print its output
with the name of the node before each line. With one selected node, the output
is printed unchanged.

The words of the command are joined with spaces, and the login shell of the user
on the node interprets the line. Quote what your own shell must not interpret.

The exit code is the highest exit status of the command on any node, or 6 if a
node cannot be reached.`,
		Example: `  nixbench exec --on @web -- 'journalctl -u nginx | tail -n 3'
  nixbench exec --on 'web-*' --root -- systemctl restart nginx`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withSession("", &flags, deploy.RemoteNodes, func(s *deploy.Session, args []string) error {
		command := remote.Cmd{Argv: args, Sudo: root, Unlimited: true}
		if !literal { // the login shell, which sshd sets as SHELL, interprets the command line
			command.Name = strings.Join(args, " ")
			command.Argv = []string{"sh", "-c", `exec "${SHELL:-sh}" -c "$1"`, "sh", command.Name}
		}
		prefixed := len(s.Nodes) > 1 || a.json
		return joinExitErrors(deploy.RunOnNodes(a.ctx, s, func(ctx context.Context, h *remote.Host, n nixeval.Node) error {
			c := command
			if !prefixed {
				c.Stdout, c.Stderr = a.view.Raw()
				return h.Run(ctx, c)
			}
			out := &lines.Writer{Each: func(line string) { a.view.Output(n.Name, line) }, Err: a.view.Err}
			c.Stdout, c.Stderr = out, out
			defer out.Flush()
			return h.Run(ctx, c)
		}))
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after COMMAND are its arguments
	flags.addWithParallel(f, 0)
	f.BoolVar(&root, "root", false, "run it as root, with deployment.privilegeEscalationCommand if the user is not root")
	f.BoolVar(&literal, "literal", false, "run a program with exactly these arguments, without a shell")
	return cmd
}

// joinExitErrors joins the errors of nodes. Those on which the command has failed become one [commandError] with the highest exit status.
func joinExitErrors(results []fleet.Outcome[int]) error {
	var errs []error
	var failed []string
	code := 0
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		} else if r.Value != 0 {
			code = max(code, r.Value)
			failed = append(failed, fmt.Sprintf("%s (%d)", r.Node.Name, r.Value))
		}
	}
	if code != 0 {
		errs = append(errs, &commandError{text: "the command failed on " + strings.Join(failed, ", "), code: code})
	}
	return errors.Join(errs...)
}
