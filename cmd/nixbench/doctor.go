package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the prerequisites of apply",
		Long: `Check the prerequisites of apply, and change nothing: Nix, its daemon and the
SSH client on this machine; if the hive has roles, also the hypervisors, the
images, and the memory and disk space for the machines of the hive. The exit
code is 9 if a finding is an error.`,
		Example: `  nixbench doctor --set roles.worker.count=20`,
		RunE: a.withSession("", &fleetFlags{}, deploy.NoNodes, func(s *deploy.Session, _ []string) error {
			findings, err := s.Examine(a.ctx)
			if err != nil {
				return err
			}
			return showFindings(a.view, findings)
		}),
	}
}

func nixInfoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "nix-info",
		Short: "Show the Nix installation of this machine",
		Long: `Show the version of Nix, whether its store can be reached, and whether OpenSSH's
client is installed. No hive is needed. nixbench doctor checks more.`,
		RunE: a.withView(func([]string) error { return showFindings(a.view, inspect.Computer(a.ctx)) }),
	}
}

// showFindings shows the findings of an examination, such as of this computer. If a finding is an error, it returns an error. If this
// is an error in the hive's options, it returns the error of the finding itself.
func showFindings(view *ui.View, findings []provider.Finding) error {
	var rows []ui.Row
	var failed []string
	var fixes string
	for _, f := range findings {
		title := f.What
		if f.Where != "" { // the hypervisor
			title += " (" + f.Where + ")"
		}
		rows = append(rows, ui.Row{f.State, title, f.Text})
		if f.Fix != "" && f.State != "ok" {
			fixes += fmt.Sprintf("\n%s: %s", title, f.Fix) // on one line, because the fix may contain commands to copy
		}
		if f.State == "error" {
			failed = append(failed, title)
		}
	}
	view.Result(findings, func(w io.Writer) {
		ui.List(w, rows)
		if fixes != "" {
			fmt.Fprintln(w, fixes)
		}
	})
	for _, f := range findings {
		if failure.KindOf(f.Err) == failure.Usage {
			return f.Err
		}
	}
	if len(failed) > 0 {
		return newCheckError(failed)
	}
	return nil
}
