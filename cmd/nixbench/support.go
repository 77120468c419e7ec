package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/support"
)

func supportCommand(a *app) *cobra.Command {
	var on []string
	var out string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect versions, status and records in a file",
		Long: `Write a .tar.gz file for a report of a problem. It contains:

  versions.txt   the versions of nixbench and Nix
  doctor.txt     the findings of doctor
  hive.json      the names, sizes and addresses in the hive, and names of keys
  status.txt     the status of the nodes; status.json: the same for programs
  runs/          the last five runs: arguments, results, errors and times

It contains no keys, no files of secrets, no logs and no journals. An error can
quote the last lines of a program that failed: read the file before you give it
to others. The command changes nothing.`,
		Example: `  nixbench support
  nixbench support --on worker-3 -o report.tar.gz`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runSupport(a, on, out) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.StringVarP(&out, "output", "o", "", "write `FILE` (default: nixbench-support-TIME.tar.gz here)")
	return cmd
}

// runSupport writes an archive with information for a bug report: versions, the hive's structure, findings, states and runs.
func runSupport(a *app, on []string, out string) error {
	if out != "" {
		if err := checkOutput("--output", out, func(string) bool { return false }); err != nil {
			return err
		}
	}
	s, err := a.openNodes(fleetFlags{on: on, parallel: 10}, deploy.SelectedNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	b := &support.Bundle{Time: time.Now().UTC()}
	if out == "" {
		out = "nixbench-support-" + b.Time.Format("20060102T150405Z") + ".tar.gz"
	}
	nix, err := inspect.NixVersion(a.ctx)
	b.AddText("versions.txt", fmt.Sprintf("nixbench %+v\n%s/%s\n%s\n", readBuildVersion(), runtime.GOOS, runtime.GOARCH, nix), err)
	b.AddHive(s.Hive)
	findings, err := s.Examine(a.ctx)
	if err == nil {
		var text bytes.Buffer
		writeFindings(&text, findings)
		b.AddText("doctor.txt", text.String(), nil)
		addStatus(a.ctx, b, s)
	} else {
		b.AddText("state.txt", "", err)
	}
	b.AddRuns(s.Dir)
	if err := a.ctx.Err(); err != nil {
		return context.Cause(a.ctx)
	}
	data, err := b.Encode()
	if err != nil {
		return err
	}
	if err := durable.Write(out, data); err != nil { // a private file
		return err
	}
	a.view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	return nil
}

// addStatus adds the status of the nodes to the support bundle.
func addStatus(ctx context.Context, b *support.Bundle, s *deploy.Session) {
	if err := s.SelectRemote(); err != nil {
		b.AddText("status.txt", "", err)
		return
	}
	status, err := s.Status(ctx, deploy.StatusOptions{Figures: true})
	var text bytes.Buffer
	if status != nil {
		for i := range status.Rows {
			status.Rows[i].Reasons = nil // lines of journals
		}
		writeStatus(&text, status.Rows, true, status.Notes...)
		b.AddJSON("status.json", status.Rows)
	}
	b.AddText("status.txt", text.String(), err)
}
