package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/nixeval"
)

func evalCommand(a *app) *cobra.Command {
	var x nixeval.Expression
	var on []string
	var instantiate, keepGoing bool
	cmd := &cobra.Command{
		Use:     "eval [FILE | -E EXPRESSION]",
		Aliases: []string{"introspect"},
		Short:   "Evaluate the hive, or an expression about it",
		Long: `List the nodes of the hive; or evaluate an expression, in a file or after -E,
and print its value as JSON. The expression is a function of
{ pkgs, lib, nodes }, where nodes.NAME.config is the NixOS configuration of a
node.`,
		Example: `  nixbench eval --on @worker --instantiate        # derivations of some
  nixbench eval -E '{ lib, nodes, ... }: lib.attrNames nodes'
  nixbench eval ports.nix                         # { nodes, ... }: …`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		exprGiven := cmd.Flags().Changed("expr")
		if exprGiven && strings.TrimSpace(x.Text) == "" {
			return failure.NewUsage("eval: -E needs an expression, such as '{ nodes, ... }: builtins.attrNames nodes'")
		}
		if len(args) == 1 {
			if exprGiven {
				return failure.NewUsage("eval: -E and a file exclude each other")
			}
			x.File = args[0]
		}
		if !exprGiven && x.File == "" {
			return evalHive(a, on, instantiate, keepGoing)
		}
		if len(on) > 0 {
			return failure.NewUsage("eval: --on and an expression exclude each other: the expression gets all nodes and can select some")
		}
		return evalExpression(a, x, instantiate)
	})
	f := cmd.Flags()
	f.StringVarP(&x.Text, "expr", "E", "", "the `EXPRESSION`: a function of { pkgs, lib, nodes }")
	f.BoolVar(&instantiate, "instantiate", false, "instantiate, and print the paths of the derivations")
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.BoolVar(&keepGoing, "keep-going", false, "print the other nodes if some cannot be evaluated")
	return cmd
}

func evalExpression(a *app, x nixeval.Expression, instantiate bool) error {
	r, err := a.newRequest(fleetFlags{})
	if err != nil {
		return err
	}
	e, err := deploy.OpenEvaluator(a.ctx, r)
	if err != nil {
		return err
	}
	if instantiate {
		drvs, err := e.IntrospectDrvs(a.ctx, x)
		if err == nil {
			a.view.Result(drvs, func(w io.Writer) { fmt.Fprintln(w, strings.Join(drvs, "\n")) })
		}
		return err
	}
	data, err := e.Introspect(a.ctx, x)
	if err == nil {
		a.view.Result(json.RawMessage(data), func(w io.Writer) { fmt.Fprintf(w, "%s\n", bytes.TrimRight(data, "\n")) })
	}
	return err
}

func evalHive(a *app, on []string, instantiate, keepGoing bool) error {
	return a.inSession(fleetFlags{on: on}, onNodes("", deploy.SelectedNodes), func(s *deploy.Session) error {
		if !instantiate {
			shown := newHiveView(s.Hive, s.Nodes)
			rows := []ui.Row{{"NODE", "UNIT", "HOST", "TAGS"}}
			for _, n := range shown.Nodes {
				rows = append(rows, ui.Row{n.Name, n.Unit, cmp.Or(strings.Join(n.TargetHosts, ", "), "-"), strings.Join(n.Tags, ",")})
			}
			a.view.Result(shown, func(w io.Writer) { ui.Table(w, rows) })
			return deploy.CheckEvaluable(s.Hive, s.Nodes...)
		}
		closures, err := stages.Instantiate(a.ctx, s.Eval, s.Hive, s.Nodes, keepGoing, nil)
		drvs := map[string]string{}
		var rows []ui.Row
		for _, n := range s.Nodes {
			if c, ok := closures[n.Unit]; ok {
				drvs[n.Name] = c.Drv
				rows = append(rows, ui.Row{n.Name, c.Drv})
			}
		}
		if len(rows) > 0 {
			a.view.Result(drvs, func(w io.Writer) { ui.List(w, rows) })
		}
		return err
	})
}

// hiveView is the JSON output of `eval`. It contains the names of deployment.keys, but not the contents of the keys.
type hiveView struct {
	Name        string                  `json:"name"`
	Description string                  `json:"description,omitempty"`
	Cluster     *nixeval.Cluster        `json:"cluster,omitempty"`
	Roles       map[string]nixeval.Role `json:"roles,omitempty"`
	Nodes       []nodeView              `json:"nodes"`
}

type nodeView struct {
	nixeval.Node
	TargetHosts nixeval.TargetHosts `json:"targetHost"`
	TargetPort  *int                `json:"targetPort"`
	TargetUser  *string             `json:"targetUser"`
	Keys        []string            `json:"keys"`
}

func newHiveView(hive *nixeval.Hive, nodes []nixeval.Node) hiveView {
	v := hiveView{Name: hive.Meta.Name, Description: hive.Meta.Description, Roles: hive.Roles, Nodes: []nodeView{}}
	if hive.Cluster != nil && (hive.Cluster.Declared || len(hive.Roles) > 0) {
		v.Cluster = hive.Cluster
	}
	for _, n := range nodes {
		var d nixeval.Deployment // empty for a node that cannot be evaluated
		if u := hive.Unit(n.Unit); u != nil {
			d = u.Deployment
		}
		v.Nodes = append(v.Nodes, nodeView{n, d.TargetHosts, d.TargetPort, d.TargetUser, append([]string{}, nixeval.SortedNames(d.Keys)...)})
	}
	return v
}

func replCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "repl",
		Short: "Explore the hive in nix repl",
		Long: `Start nix repl with the hive loaded: nodes.NAME.config and nodes.NAME.options
are the configuration of each node, pkgs and lib are those of meta.nixpkgs.`,
		Example: `  nixbench repl
  nix-repl> nodes.web.config.networking.firewall.allowedTCPPorts`,
		RunE: a.withView(func([]string) error {
			if a.json {
				return failure.NewUsage("repl: --json is not supported")
			}
			r, err := a.newRequest(fleetFlags{})
			if err != nil {
				return err
			}
			e, err := deploy.OpenEvaluator(a.ctx, r)
			if err != nil {
				return err
			}
			return e.Repl(a.ctx)
		}),
	}
}
