package main

import (
	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
)

func replCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repl",
		Short: "Explore the hive in nix repl",
		Long: `Start nix repl with the hive loaded: nodes.NAME.config and nodes.NAME.options
are the configuration of each node, pkgs and lib are those of meta.nixpkgs.`,
		Example: `  nixbench repl
  nix-repl> nodes.web.config.networking.firewall.allowedTCPPorts`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error {
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
	})
	return cmd
}
