package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/report"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

func (a *app) runsShowCommand() *cobra.Command {
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
			return newUsageError("runs show: a second run and -o require --html")
		}
		dir, _, err := a.surveyForState()
		if err != nil {
			return err
		}
		run, err := runs.Open(dir, args[0])
		if err != nil {
			return err
		}
		if !html {
			return a.showRun(run)
		}
		var before *runs.Run
		if len(args) > 1 {
			if before, err = runs.Open(dir, args[1]); err != nil {
				return err
			}
		}
		return a.writeHTMLPage(run, before, out)
	})
	cmd.Flags().BoolVar(&html, "html", false, "write an HTML page")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write it to `FILE`, - for stdout (default: RUN.html here)")
	return cmd
}

func (a *app) writeHTMLPage(run, before *runs.Run, out string) error {
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
		a.view.Result(page.String(), func(w io.Writer) { _, err = page.WriteTo(w) })
		return err
	}
	if out == "" {
		out = run.ID + ".html"
	}
	// The page contains logs, so only the current user may read it. durable.Write creates private
	// files.
	if err := durable.Write(out, page.Bytes()); err != nil {
		return err
	}
	a.view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	return nil
}
