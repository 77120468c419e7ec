package main

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

const nixInfoLong = `Show the version of Nix, whether its store can be reached, and whether OpenSSH's
client is installed. No hive is needed. nixbench doctor checks more.`

func nixInfoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "nix-info",
		Short:   "Show the Nix installation of this machine",
		Long:    nixInfoLong,
		Example: "  nixbench nix-info",
		Args:    cobra.NoArgs,
		RunE:    a.withView(func([]string) error { return showFindings(a.view, inspect.Computer(a.ctx)) }),
	}
}

// showFindings shows the findings of an examination, such as of this computer. If a finding is an error, it returns an error. If this
// is an error in the hive's options, it returns the error of the finding itself.
func showFindings(view *ui.View, findings []provider.Finding) error {
	view.Result(findings, func(w io.Writer) { writeFindings(w, findings) })
	for _, f := range findings {
		if failure.KindOf(f.Err) == failure.Usage {
			return f.Err
		}
	}
	if slices.ContainsFunc(findings, func(f provider.Finding) bool { return f.State == "error" }) {
		return &checkError{nodes: errorFindings(findings)}
	}
	return nil
}
