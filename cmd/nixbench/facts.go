package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

func factsCommand(a *app) *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Print the runtime facts of the cluster",
		Long: `Print runtime.json: the addresses and host keys of the cluster's machines, as
NixOS modules get them in their argument runtime. It contains no secrets.`,
		Example: `  nixbench facts --schema > runtime.schema.json`,
	}
	cmd.RunE = a.withView(func([]string) error {
		if schema {
			a.view.Result(json.RawMessage(facts.Schema), func(w io.Writer) { fmt.Fprint(w, facts.Schema) })
			return nil
		}
		if file := a.request.Eval.Facts; file != "" {
			return showFacts(a, file)
		}
		return a.inSession(fleetFlags{}, onNodes("", deploy.NoNodes), func(s *deploy.Session) error { return showFacts(a, s.Dir.Facts()) })
	})
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of runtime.json")
	return cmd
}

func showFacts(a *app, file string) error {
	r, err := facts.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return failure.WithHint(fmt.Errorf("there are no facts yet: %w", err), "nixbench apply writes them when it boots machines; --facts FILE uses another file")
	}
	if err != nil {
		return err
	}
	rows := []ui.Row{{"NODE", "ROLE", "ADDRESS"}}
	for _, name := range nixeval.SortedNames(r.Nodes) {
		n := r.Nodes[name]
		rows = append(rows, ui.Row{name, n.Role, n.Address.String()})
	}
	a.view.Result(r, func(w io.Writer) { ui.Table(w, rows) })
	return nil
}
