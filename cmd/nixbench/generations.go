package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// generation is a generation of a node in the output of --json.
type generation struct {
	Node    string    `json:"node"`
	Number  int       `json:"generation"`
	Path    string    `json:"path"`
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	Current bool      `json:"current"`
	Booted  bool      `json:"booted"`
	Default bool      `json:"default"`
}

func generationsCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var paths bool
	cmd := &cobra.Command{
		Use:   "generations",
		Short: "List the generations of nodes",
		Long: `List the systems that nodes can roll back to with nixbench rollback --to N: the
entries of their system profile, the newest first. Marks show the running one
(current), the one that was booted (booted), and the one that the next boot uses
(default).`,
		Example: `  nixbench generations
  nixbench generations --on web-1 --paths`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runGenerations(a, flags, paths) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.BoolVar(&paths, "paths", false, "show store paths, too")
	return cmd
}

func runGenerations(a *app, flags fleetFlags, paths bool) error {
	s, err := a.openNodes(flags, deploy.RemoteNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	inspected := s.Inspect(a.ctx)
	list := []generation{}
	for _, o := range inspected {
		list = append(list, generationsOf(o.Node.Name, o.Value)...)
	}
	a.view.Result(list, func(w io.Writer) { writeGenerations(w, list, paths) })
	return errors.Join(fleet.Errors(inspected)...)
}

func generationsOf(node string, n activate.Node) []generation {
	var out []generation
	for i := len(n.Generations) - 1; i >= 0; i-- {
		g := n.Generations[i]
		out = append(out, generation{node, g.Number, g.Path, g.Time, g.Version, g.Current, g.Booted, g.Default})
	}
	return out
}

func writeGenerations(w io.Writer, list []generation, paths bool) {
	rows := []ui.Row{{"NODE", "GENERATION", "DATE", "VERSION", ""}}
	for _, g := range list {
		var marks []string
		for _, m := range []struct {
			has  bool
			name string
		}{{g.Current, "current"}, {g.Booted, "booted"}, {g.Default, "default"}} {
			if m.has {
				marks = append(marks, m.name)
			}
		}
		version := g.Version
		if version == "" {
			version = "-"
		}
		row := ui.Row{g.Node, fmt.Sprint(g.Number), g.Time.Local().Format("2006-01-02 15:04"), version, strings.Join(marks, ", ")}
		if paths {
			row = append(row, g.Path)
		}
		rows = append(rows, row)
	}
	ui.Table(w, rows)
}
