package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/nixeval"
)

const buildLong = `Evaluate and build the systems of nodes, and print the store path for each node.
If a node cannot be evaluated, nothing is built, unless --keep-going is set.

Links in .nixbench/ beside the hive protect the closures from Nix's garbage
collector until the next build of the same nodes.`

func (a *app) buildCommand() *cobra.Command {
	var on []string
	var keepGoing, keepResult bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the systems of nodes, without deploying them",
		Long:  buildLong,
		Example: `  nixbench build
  nixbench build --on 'web-*,@db' --keep-result
  nixbench build --set roles.worker.count=50 --json
  nixbench build --flake .#production --nix-option cores 2`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error {
		e, hive, nodes, err := a.loadNodes(on)
		if err != nil {
			return err
		}
		return a.buildOnly(e, hive, nodes, keepGoing, keepResult)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.BoolVar(&keepGoing, "keep-going", false, "build the other nodes if some fail; the exit code still reports the failure")
	f.BoolVar(&keepResult, "keep-result", false, "create links result-NODE to the systems in the working directory")
	acceptFlags(f, colmenaFlags...)
	return cmd
}

// buildOnly builds the systems of nodes and prints their paths, for `build` and `apply build`.
func (a *app) buildOnly(e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, keepGoing, results bool) error {
	built, err := deploy.Build(a.ctx, e, hive.WithKeys(nodes), nodes, keepGoing)
	err = errors.Join(err, a.keepBuilt(e, hive, built, results))
	if built != nil {
		a.showBuilt(built)
	}
	return err
}

// keepBuilt registers the built closures as garbage collector roots. With results, it also creates
// the links result-NODE in the working directory.
func (a *app) keepBuilt(e *nixeval.Evaluator, hive *nixeval.Hive, built []deploy.Closure, results bool) error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	closures, links := map[string]nixeval.Closure{}, map[string]string{}
	for _, c := range built {
		if c.Built {
			closures[c.Unit] = nixeval.Closure{Out: c.Path}
			links[filepath.Join(wd, "result-"+c.Node)] = c.Path
		}
	}
	if err := a.registerRoots(e, hive, closures); err != nil || !results {
		return err
	}
	return e.Keep(a.ctx, links)
}

func (a *app) showBuilt(built []deploy.Closure) {
	var rows []ui.Row
	for _, c := range built {
		if c.Built {
			rows = append(rows, ui.Row{c.Node, c.Path})
		}
	}
	a.view.Result(built, func(w io.Writer) { ui.List(w, rows) })
}
