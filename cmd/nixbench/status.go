package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

const statusLong = `Show the state of nodes: role, address, the running generation and the one that
the next boot uses, whether it is the deployed system, failed units, whether a
reboot is needed, uptime, and the result of the last run. MEMBER and VERSION are
the state of a node in its cluster, such as Ready, and the version of the engine
there.

-o wide shows all columns, also on a narrow terminal.

Values of SYSTEM:
  as deployed     the system that the last run left
  other system    another system: it was deployed by other means, or rolled back
  never deployed  no run has deployed the node
  away            nothing answers at the node's hosts, and the node may be away:
                  it has deployment.optional, or --skip-unreachable is set
  not booted      the machine, which nixbench boots, does not run: MACHINE shows
                  whether it is off, paused, crashed, absent, or half there: its
                  domain or disk is missing; apply starts it
  up to date, differs
                  with --drift: whether it is the system of the hive, which is
                  evaluated for this; nothing is built

If another node cannot be reached, the exit code is 6. With --check it is 9
unless every other node runs its system without failed units, is a ready
member of its cluster, and passes its deployment.healthChecks, which are run
once.`

func statusCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var drift, check, noHealth bool
	format := "table"
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the system and the health of nodes",
		Long:  statusLong,
		Example: `  nixbench status
  nixbench status -o wide
  nixbench status --on @web --drift
  nixbench status --check --json`,
	}
	cmd.RunE = a.withSession("", &flags, deploy.RemoteNodes, func(s *deploy.Session, _ []string) error {
		wide := format == "wide"
		status, err := s.Status(a.ctx, deploy.StatusOptions{Drift: drift, Figures: wide, Health: check && !noHealth})
		if status == nil {
			return err
		}
		if a.json && status.MembersErr != nil {
			event.Sink(a.sendEvent).Warn("%v", status.MembersErr)
		}
		a.view.Result(status.Rows, func(w io.Writer) { writeStatus(w, status.Rows, wide, status.Notes...) })
		if check {
			err = errors.Join(err, status.MembersErr)
			if bad := status.Unhealthy(); bad != nil {
				err = errors.Join(err, &checkError{bad})
			}
		}
		return err
	})
	f := cmd.Flags()
	flags.add(f)
	flags.addSkip(f)
	f.VarP(&choice{&format, []string{"table", "wide"}}, "output", "o", "`FORMAT`: wide also shows the use of processors, memory and disk")
	f.BoolVar(&drift, "drift", false, "evaluate the hive, and compare nodes with it")
	f.BoolVar(&check, "check", false, "exit with 9 if a node is not healthy or runs another system")
	f.BoolVar(&noHealth, "no-health-checks", false, noHealthHelp)
	return cmd
}

type checkError struct{ nodes []string }

func (e *checkError) Error() string {
	return "unhealthy, or not in the expected state: " + strings.Join(e.nodes, ", ")
}

func (e *checkError) Kind() failure.Kind { return failure.Check }
