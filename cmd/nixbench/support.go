package main

import (
	"cmp"
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
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

func supportCommand(a *app) *cobra.Command {
	var on []string
	var out string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect versions, status and records in a file",
		Long: `Write a JSON file for a report of a problem: the versions of nixbench and Nix;
names, sizes and addresses in the hive, and names of keys; the findings of
doctor; the status of the nodes; and arguments, results and errors of the last
five runs.

It contains no keys, no files of secrets, no logs and no journals. An error can
quote the last lines of a program that failed: read the file before you give it
to others.`,
		Example: `  nixbench support --on worker-3 -o report.json`,
	}
	cmd.RunE = a.withView(func([]string) error {
		if out != "" {
			if err := checkOutput("--output", out, func(string) bool { return false }); err != nil {
				return err
			}
		}
		return a.inSession(fleetFlags{on: on, parallel: 10}, onNodes("", deploy.SelectedNodes), func(s *deploy.Session) error {
			nix, nixErr := inspect.NixVersion(a.ctx)
			r := supportReport{Hive: newHiveView(s.Hive, s.Hive.Nodes), Versions: map[string]string{
				"nixbench": fmt.Sprintf("%+v", readBuildVersion()), "system": runtime.GOOS + "/" + runtime.GOARCH, "nix": nix,
			}}
			var examineErr, statusErr, runsErr error
			if r.Doctor, examineErr = s.Examine(a.ctx); examineErr == nil {
				r.Status, statusErr = readStatus(a.ctx, s)
			}
			r.Runs, runsErr = lastRuns(s.Dir)
			for _, err := range []error{nixErr, examineErr, statusErr, runsErr} {
				if err != nil {
					r.Errors = append(r.Errors, err.Error())
				}
			}
			if err := a.ctx.Err(); err != nil {
				return context.Cause(a.ctx)
			}
			data, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				return err
			}
			out = cmp.Or(out, "nixbench-support-"+time.Now().UTC().Format("20060102T150405Z")+".json")
			if err := durable.Write(out, data); err != nil { // a private file
				return err
			}
			a.view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
			return nil
		})
	})
	f := cmd.Flags()
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.StringVarP(&out, "output", "o", "", "write `FILE` (default: nixbench-support-TIME.json here)")
	return cmd
}

// supportReport is the content of the file that `nixbench support` writes. None of its parts contains a secret of the hive or of the
// state folder, and none contains what a program has printed, except that an error quotes the last lines of a program that failed.
type supportReport struct {
	Versions map[string]string  `json:"versions"`
	Hive     hiveView           `json:"hive"`
	Doctor   []provider.Finding `json:"doctor"`
	Status   []inspect.Status   `json:"status"`
	Runs     []*runs.Run        `json:"runs"` // without the logs of nodes and builds
	Errors   []string           `json:"errors"`
}

// readStatus returns the status of the nodes, without lines of journals.
func readStatus(ctx context.Context, s *deploy.Session) ([]inspect.Status, error) {
	if err := s.SelectRemote(); err != nil {
		return nil, err
	}
	status, err := s.Status(ctx, deploy.StatusOptions{Figures: true})
	if status == nil {
		return nil, err
	}
	for i := range status.Rows {
		status.Rows[i].Reasons = nil
	}
	return status.Rows, err
}

func lastRuns(dir state.Dir) (last []*runs.Run, err error) {
	list, err := runs.List(dir)
	for _, summary := range list[:min(5, len(list))] {
		run, openErr := runs.Open(dir, summary.ID)
		if err = errors.Join(err, openErr); openErr == nil {
			last = append(last, run)
		}
	}
	return last, err
}
