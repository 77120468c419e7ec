package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
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
  runs/          the last five runs: arguments, results and errors

It contains no keys, no files of secrets, no logs and no journals. An error can
quote the last lines of a program that failed: read the file before you give it
to others.`,
		Example: `  nixbench support
  nixbench support --on worker-3 -o report.tar.gz`,
	}
	cmd.RunE = a.withView(func([]string) error { return runSupport(a, on, out) })
	f := cmd.Flags()
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.StringVarP(&out, "output", "o", "", "write `FILE` (default: nixbench-support-TIME.tar.gz here)")
	return cmd
}

// runSupport writes a .tar.gz file for a bug report: versions, the hive's structure, findings, states and runs. None of its parts
// contains a secret of the hive or of the state folder, and none contains what a program has printed, except that an error quotes
// the last lines of a program that failed. So there is nothing to search for secrets.
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
	now := time.Now().UTC()
	out = cmp.Or(out, "nixbench-support-"+now.Format("20060102T150405Z")+".tar.gz")
	b := bundle{}
	nix, err := inspect.NixVersion(a.ctx)
	b.addText("versions.txt", fmt.Sprintf("nixbench %+v\n%s/%s\n%s\n", readBuildVersion(), runtime.GOOS, runtime.GOARCH, nix), err)
	b.addJSON("hive.json", newHiveView(s.Hive, s.Hive.Nodes))
	findings, err := s.Examine(a.ctx)
	if err == nil {
		var text bytes.Buffer
		writeFindings(&text, findings)
		b.addText("doctor.txt", text.String(), nil)
		b.addStatus(a.ctx, s)
	} else {
		b.addText("state.txt", "", err)
	}
	b.addRuns(s.Dir)
	if err := a.ctx.Err(); err != nil {
		return context.Cause(a.ctx)
	}
	data, err := b.encode(now)
	if err != nil {
		return err
	}
	if err := durable.Write(out, data); err != nil { // a private file
		return err
	}
	a.view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	return nil
}

// bundle maps the name of a file in the .tar.gz file to its content.
type bundle map[string]string

// addText adds a text, followed by the error if there is one.
func (b bundle) addText(name, text string, err error) {
	if err != nil {
		text += "\n" + err.Error() + "\n"
	}
	b[name] = text
}

// addJSON adds a value as JSON.
func (b bundle) addJSON(name string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	b.addText(name, string(data)+"\n", err)
}

// addStatus adds the status of the nodes.
func (b bundle) addStatus(ctx context.Context, s *deploy.Session) {
	if err := s.SelectRemote(); err != nil {
		b.addText("status.txt", "", err)
		return
	}
	status, err := s.Status(ctx, deploy.StatusOptions{Figures: true})
	var text bytes.Buffer
	if status != nil {
		for i := range status.Rows {
			status.Rows[i].Reasons = nil // lines of journals
		}
		writeStatus(&text, status.Rows, true, status.Notes...)
		b.addJSON("status.json", status.Rows)
	}
	b.addText("status.txt", text.String(), err)
}

// addRuns adds the records of the last five runs, without the logs of nodes and builds.
func (b bundle) addRuns(dir state.Dir) {
	list, err := runs.List(dir)
	if err != nil {
		b.addText("runs.txt", "", err)
	}
	for _, summary := range list[:min(5, len(list))] {
		run, err := runs.Open(dir, summary.ID)
		if err != nil {
			b.addText("runs/"+summary.ID+".txt", "", err)
			continue
		}
		b.addJSON("runs/"+summary.ID+".json", run)
	}
}

// encode returns the bundle as a .tar.gz file, whose files have the given time.
func (b bundle) encode(time time.Time) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	for _, name := range sortedNames(b) {
		if err := files.WriteHeader(&tar.Header{Name: "nixbench-support/" + name, Mode: 0o600, Size: int64(len(b[name])), ModTime: time}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(files, b[name]); err != nil {
			return nil, err
		}
	}
	err := errors.Join(files.Close(), packed.Close())
	return out.Bytes(), err
}
