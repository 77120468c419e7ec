package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/lines"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

type logsFlags struct {
	fleetFlags
	follow bool
	lines  string
	since  string
}

func logsCommand(a *app) *cobra.Command {
	var flags logsFlags
	cmd := &cobra.Command{
		Use:   "logs {NODE | --on NODES} [UNIT]",
		Short: "Show or follow the journals of nodes",
		Long: `Show the end of a node's journal, or of one of its units. With --on, show those
of several nodes, with the name of the node before each line. The exit codes are
those of nixbench exec.`,
		Example: `  nixbench logs --on @worker --since '1 hour ago' nginx`,
		Args:    cobra.MaximumNArgs(2),
	}
	cmd.RunE = a.withView(func(args []string) error {
		on, unit := flags.on, args
		if len(on) == 0 {
			if len(args) == 0 {
				return failure.NewUsage("logs: name a node, or select several with --on")
			}
			on, unit = args[:1], args[1:]
		}
		if len(unit) > 1 {
			return failure.NewUsage("logs: with --on, the only argument is a unit (got %s)", unit[0]+" "+unit[1])
		}
		argv, err := flags.journalctl(append(unit, "")[0])
		if err != nil {
			return err
		}
		return runLogs(a, on, argv, flags)
	})
	f := cmd.Flags()
	flags.addWithParallel(f, 0)
	// In this command, -f is short for --follow. So define the global flag --file again, without its short form -f.
	f.StringVar(&a.request.File, "file", "", "hive `FILE`; -f is --follow in this command, but --file before the word logs")
	f.BoolVarP(&flags.follow, "follow", "f", false, "also show new lines, until Ctrl-C")
	f.StringVarP(&flags.lines, "lines", "n", "", "show the last `N` lines, or all (default: 100, with --since all)")
	f.StringVar(&flags.since, "since", "", "show lines since a `TIME`, as journalctl accepts it: yesterday, 2026-11-20 08:30, -10min")
	return cmd
}

func (f logsFlags) journalctl(unit string) ([]string, error) {
	lines := f.lines
	switch n, err := strconv.Atoi(lines); {
	case lines == "" && f.since == "":
		lines = "100"
	case lines == "":
		lines = "all"
	case lines != "all" && (err != nil || n < 0):
		return nil, failure.NewUsage("--lines must be a number or all (it is %s)", lines)
	}
	argv := []string{"journalctl", "--no-pager", "--quiet", "--no-hostname", "--output=short-iso", "--lines=" + lines}
	if f.follow {
		argv = append(argv, "--follow")
	}
	if f.since != "" {
		argv = append(argv, "--since="+f.since)
	}
	if unit != "" {
		argv = append(argv, "--unit="+unit)
	}
	return argv, nil
}

// runLogs shows the journals of nodes. Without --on, the only element of on is the name of the node.
func runLogs(a *app, on []string, argv []string, flags logsFlags) error {
	set := func(r *deploy.Request) {
		if r.Nodes = deploy.RemoteNodes; len(flags.on) == 0 {
			r.Pick = deploy.NodeNamed(on[0])
		}
	}
	return a.inSession(flags.fleetFlags, set, func(s *deploy.Session) error {
		results := deploy.RunOnNodes(a.ctx, s, func(ctx context.Context, h *remote.Host, n nixeval.Node) error {
			name, empty := n.Name, true
			if len(s.Nodes) == 1 && !a.json {
				name = ""
			}
			out := &lines.Writer{Err: a.view.Err, Each: func(line string) {
				empty = false
				a.view.Output(name, line)
			}}
			errs := &lines.Writer{Err: a.view.Err, Each: func(line string) { a.sink.NoteOn(n.Name, "%s", line) }}
			err := h.Run(ctx, remote.Cmd{Argv: argv, Sudo: true, Unlimited: true, Stdout: out, Stderr: errs})
			out.Flush()
			errs.Flush()
			if err == nil && empty {
				a.sink.Note("%s: its journal has no such lines", n.Name)
			}
			return err
		})
		switch {
		case a.ctx.Err() == nil:
			return joinExitErrors(results)
		case flags.follow: // the usual end
			return nil
		}
		return context.Cause(a.ctx)
	})
}
