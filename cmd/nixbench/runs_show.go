package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/report"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

func runsShowCommand(a *app) *cobra.Command {
	var html bool
	var out string
	cmd := &cobra.Command{
		Use:   "show RUN [BEFORE]",
		Short: "Show a recorded run, or write it as an HTML page",
		Long: `Show a recorded run, like "nixbench runs RUN", or with --html write it as one
HTML page, which needs no other files. With a second run, the page compares the
first with the second.`,
		Example: `  nixbench runs show last --html
  nixbench runs show last 20261120T0830 --html -o slower.html`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if !html && (len(args) > 1 || out != "") {
			return failure.NewUsage("runs show: a second run and -o require --html")
		}
		s, err := a.openNodes(fleetFlags{}, deploy.NoNodes)
		if err != nil {
			return err
		}
		defer s.Close()
		run, err := runs.Open(s.Dir, args[0])
		if err != nil {
			return err
		}
		if !html {
			return showRun(a.view, run)
		}
		var before *runs.Run
		if len(args) > 1 {
			if before, err = runs.Open(s.Dir, args[1]); err != nil {
				return err
			}
		}
		return writeHTMLPage(a.view, run, before, out)
	})
	cmd.Flags().BoolVar(&html, "html", false, "write an HTML page")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write it to `FILE`, - for stdout (default: RUN.html here)")
	return cmd
}

// writeHTMLPage writes a page about a run to the file out. before is another run to compare it with, or nil.
func writeHTMLPage(view *ui.View, run, before *runs.Run, out string) error {
	subject, err := report.Load(run)
	if err != nil {
		return err
	}
	var other *report.Subject
	if before != nil {
		o, err := report.Load(before)
		if err != nil {
			return err
		}
		other = &o
	}
	var page bytes.Buffer
	if err := report.Write(&page, subject, other); err != nil {
		return err
	}
	if out == "-" {
		view.Result(page.String(), func(w io.Writer) { _, err = page.WriteTo(w) })
		return err
	}
	if out == "" {
		out = run.ID + ".html"
	}
	// The page contains logs, so only the current user may read it. durable.Write creates files that only the user can read.
	if err := durable.Write(out, page.Bytes()); err != nil {
		return err
	}
	view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	return nil
}
