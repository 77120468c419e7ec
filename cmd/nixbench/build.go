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

const buildLong = `Evaluate and build the systems of nodes, and print node and store path of each.
No machine is touched.

The nodes of a role share one closure, so 3 workers or 50 cost one evaluation and
one build. Every node that fails is reported; unless --keep-going, nothing is
built when one cannot be evaluated.

The closures are kept from Nix's garbage collector until the next build of the
same nodes, by links in .nixbench/ beside the hive.`

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
	f.BoolVar(&keepGoing, "keep-going", false, "build what can be built although other nodes fail; the exit code still tells")
	f.BoolVar(&keepResult, "keep-result", false, "make links result-NODE to the systems in the working directory")
	return cmd
}

// buildOnly implements `build` and `apply build`.
func (a *app) buildOnly(e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node, keepGoing, results bool) error {
	built, err := deploy.Build(a.ctx, e, hive.WithKeys(nodes), nodes, keepGoing)
	if keepErr := a.keepBuilt(e, hive, built, results); keepErr != nil {
		err = errors.Join(err, keepErr)
	}
	if built != nil {
		a.showBuilt(built)
	}
	return err
}

// keepBuilt registers the built closures as garbage collector roots, and with results also makes
// the links result-NODE.
func (a *app) keepBuilt(e *nixeval.Evaluator, hive *nixeval.Hive, built []deploy.Closure, results bool) error {
	links := map[string]string{}
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, c := range built {
		if !c.Built {
			continue
		}
		links[dir.Root(c.Unit)] = c.Path
		if results {
			links[filepath.Join(wd, "result-"+c.Node)] = c.Path
		}
	}
	if len(links) == 0 {
		return nil
	}
	if err := dir.Create(); err != nil {
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
	a.view.Result(built, func(w io.Writer) { ui.Table(w, rows) })
}
