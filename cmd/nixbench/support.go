package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/support"
	"github.com/nixbench/nixbench/nixeval"
)

func (a *app) supportCommand() *cobra.Command {
	var on []string
	var out string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect versions, status and records in a file",
		Long: `Write a .tar.gz file for a report of a problem. It contains:

  versions.txt   the versions of nixbench and Nix
  doctor.txt     the findings of doctor
  hive.json      the names, sizes and addresses in the hive, and the names of keys
  status.txt     the status of the nodes; status.json: the same for programs
  runs/          the last five runs: arguments, results, errors and times

It contains no keys, no files of secrets, no logs and no journals. An error can
quote the last lines of a program that failed: read the file before you give it
to others. The command changes nothing.`,
		Example: `  nixbench support
  nixbench support --on worker-3 -o report.tar.gz`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.support(on, out) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.StringVarP(&out, "output", "o", "", "write `FILE` (default: nixbench-support-TIME.tar.gz here)")
	return cmd
}

func (a *app) support(on []string, out string) error {
	if out != "" {
		if err := checkOutput("--output", out, func(string) bool { return false }); err != nil {
			return err
		}
	}
	e, hive, nodes, err := a.loadNodes(on)
	if err != nil {
		return err
	}
	b := &support.Bundle{Time: time.Now().UTC()}
	if out == "" {
		out = "nixbench-support-" + b.Time.Format("20060102T150405Z") + ".tar.gz"
	}
	nix, err := inspect.NixVersion(a.ctx)
	b.AddText("versions.txt", fmt.Sprintf("nixbench %+v\n%s/%s\n%s\n", readBuildVersion(), runtime.GOOS, runtime.GOARCH, nix), err)
	b.AddHive(hive)
	recorded, err := a.dir.Load()
	if err == nil {
		var text bytes.Buffer
		writeFindings(&text, append(inspect.Computer(a.ctx), a.newMachines(e, hive, a.sendEvent).Examine(a.ctx, recorded)...))
		b.AddText("doctor.txt", text.String(), nil)
		a.addStatus(b, e, hive, nodes)
	} else {
		b.AddText("state.txt", "", err)
	}
	b.AddRuns(a.dir)
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

// addStatus adds the status of the nodes.
func (a *app) addStatus(b *support.Bundle, e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node) {
	remote, err := a.selectRemoteNodes(hive, nodes)
	if err != nil {
		b.AddText("status.txt", "", err)
		return
	}
	const parallel = 10
	conns := a.newFleet(hive, fleetFlags{parallel: parallel}, nil)
	defer conns.Close()
	s, err := a.observeStatus(e, hive, conns, remote, statusFlags{fleetFlags: fleetFlags{parallel: parallel}, format: "wide"})
	var text bytes.Buffer
	if s != nil {
		writeStatus(&text, s.rows, true, s.notes...)
		b.AddJSON("status.json", s.rows)
	}
	b.AddText("status.txt", text.String(), err)
}
