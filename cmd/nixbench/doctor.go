package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

const doctorLong = `Check the prerequisites of apply, and change nothing: Nix, its daemon and the
SSH client on this machine; if the hive has roles, also the hypervisors, the
images, and the memory and disk space for the machines of the hive. The exit
code is 9 if a finding is an error.`

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the prerequisites of apply",
		Long:  doctorLong,
		Example: `  nixbench doctor
  nixbench doctor --set roles.worker.count=20
  nixbench doctor --json | tail -n 1 | jq '.result[] | select(.state != "ok")'`,
		Args: cobra.NoArgs,
		RunE: a.withView(func([]string) error { return runDoctor(a) }),
	}
}

func runDoctor(a *app) error {
	s, err := a.openNodes(fleetFlags{}, deploy.NoNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	findings, err := s.Examine(a.ctx)
	if err != nil {
		return err
	}
	return showFindings(a.view, findings)
}

func errorFindings(findings []provider.Finding) []string {
	var out []string
	for _, f := range findings {
		if f.State == "error" {
			out = append(out, formatFindingTitle(f))
		}
	}
	return out
}

// formatFindingTitle returns what was examined, with the hypervisor if there is one: `KVM (default)`.
func formatFindingTitle(f provider.Finding) string {
	if f.Where == "" {
		return f.What
	}
	return f.What + " (" + f.Where + ")"
}

// writeFindings writes a list of the findings, and then how to fix those that are not ok.
func writeFindings(w io.Writer, findings []provider.Finding) {
	rows := []ui.Row{}
	for _, f := range findings {
		rows = append(rows, ui.Row{f.State, formatFindingTitle(f), f.Text})
	}
	ui.List(w, rows)
	first := true
	for _, f := range findings {
		if f.Fix == "" || f.State == "ok" {
			continue
		}
		if first {
			fmt.Fprintln(w)
			first = false
		}
		fmt.Fprintf(w, "%s: %s\n", formatFindingTitle(f), f.Fix) // on one line, because the fix may contain commands to copy
	}
}
