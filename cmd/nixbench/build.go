package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
)

func buildCommand(a *app) *cobra.Command {
	var on []string
	var keepGoing, keepResult bool
	var out string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the systems of nodes, without deploying them",
		Long: `Evaluate and build the systems of nodes, and print the store path for each node.
If a node cannot be evaluated, nothing is built, unless --keep-going is set.

Links in .nixbench/ beside the hive protect the closures from Nix's garbage
collector until the next build of the same nodes.`,
		Example: `  nixbench build --on 'web-*,@db' --keep-result
  nixbench build --set roles.worker.count=50 --json`,
	}
	cmd.RunE = a.withView(func([]string) error {
		if err := checkPlanFile(a, out, keepGoing); err != nil {
			return err
		}
		return runBuild(a, fleetFlags{on: on}, func(*deploy.Request) {}, keepGoing, keepResult, out)
	})
	f := cmd.Flags()
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.BoolVar(&keepGoing, "keep-going", false, "build the other nodes if some fail; the exit code still reports the failure")
	f.BoolVar(&keepResult, "keep-result", false, "create links result-NODE to the systems in the working directory")
	f.StringVarP(&out, "out", "o", "", "write a plan to `FILE`, for nixbench apply FILE on a computer without the hive, which gets the systems from a substituter or by nix copy; no node is asked")
	acceptFlags(f, colmenaFlags...)
	return cmd
}

// runBuild builds the systems of nodes, prints their store paths, and writes the plan file out unless its name is empty. set sets the
// fields of the request that are not the same in the commands that build (build, and apply with the goal build).
func runBuild(a *app, f fleetFlags, set func(*deploy.Request), keepGoing, keepResult bool, out string) error {
	request := func(r *deploy.Request) {
		set(r)
		r.Command, r.Nodes, r.MayBeAway = "", deploy.SelectedNodes, nil
		if out != "" {
			r.Nodes = deploy.RemoteNodes
		}
	}
	return a.inSession(f, request, func(s *deploy.Session) (err error) {
		results := ""
		if keepResult {
			if results, err = os.Getwd(); err != nil {
				return err
			}
		}
		built, err := s.Build(a.ctx, keepGoing, results, out)
		if built == nil {
			return err
		}
		var rows []ui.Row
		for _, c := range built {
			if c.Built {
				rows = append(rows, ui.Row{c.Node, c.Path})
			}
		}
		a.view.Result(built, func(w io.Writer) { ui.List(w, rows) })
		return err
	})
}
