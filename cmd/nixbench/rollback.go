package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
)

const rollbackLong = `Roll back to the systems that nodes ran before the last run that changed any of
the selected nodes. Nodes that this run did not change are not changed. Keys are
not changed either.

  --to N      roll back to generation N of each node (see nixbench generations)
  --to RUN    roll back to the systems that this run left (see nixbench runs)

It first shows the plan. Without --on it asks before; without a terminal it
requires --yes.

A rollback is a switch like any other: it is armed, it is a rolling update in a
running cluster, and it is recorded as a run, so a second rollback undoes it.
The next nixbench apply deploys the hive again.`

type rollbackFlags struct {
	fleetFlags
	to       string
	yes, dry bool
	armFlags
	maxUnavailable string
	drain          drainFlags
}

func rollbackCommand(a *app) *cobra.Command {
	var flags rollbackFlags
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Roll back to the previous systems of nodes",
		Long:  rollbackLong,
		Example: `  nixbench rollback --on web-1
  nixbench rollback --dry-run
  nixbench rollback --on web-1 --to 41
  nixbench rollback --to 20260501T1200 --yes`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runRollback(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.StringVar(&flags.to, "to", "", "roll back to this generation, or to the systems that this run left: `N|RUN`")
	f.BoolVar(&flags.dry, "dry-run", false, "only show the plan")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask before all nodes are changed")
	flags.addArming(f)
	f.StringVar(&flags.maxUnavailable, "max-unavailable", "", "switch at most `N|P%` of the nodes at once, and stop after a failure")
	flags.drain.add(f, noDrainHelp)
	return cmd
}

func (f *rollbackFlags) toOptions() (stages.RollbackOptions, error) {
	o := stages.RollbackOptions{RollingOptions: stages.RollingOptions{Parallel: f.parallel, WithoutDrain: f.drain.noDrain}}
	var err error
	if o.Confirm, o.SettleTime, err = f.validateArming(); err != nil {
		return o, err
	}
	o.NoReboot = f.noReboot
	if o.Drain, err = f.drain.toOptions(); err != nil {
		return o, err
	}
	o.MaxUnavailable, err = selection.ParseShare(f.maxUnavailable)
	return o, err
}

func runRollback(a *app, flags rollbackFlags) error {
	o, err := flags.toOptions()
	if err != nil {
		return err
	}
	if err := a.requireConfirmation("rollback", flags.on, flags.yes || flags.dry); err != nil {
		return err
	}
	s, err := a.open(flags.fleetFlags, func(r *deploy.Request) {
		if r.Nodes = deploy.SelectedNodes; !flags.dry {
			r.Command, r.AllNodesOnly = "rollback", true
		}
	})
	if err != nil {
		return err
	}
	defer s.Close()
	steps, err := s.PlanRollback(a.ctx, flags.to)
	if err != nil {
		return err
	}
	if flags.dry {
		a.view.Result(stepViewsOf(steps), func(w io.Writer) { writeSteps(w, steps) })
		return joinStepErrors(steps)
	}
	if countChanges(steps) == 0 {
		a.view.Result([]state.NodeResult{}, func(w io.Writer) { writeSteps(w, steps) })
		return joinStepErrors(steps)
	}
	a.announce(func(w io.Writer) { writeSteps(w, steps) })
	if err := a.confirm(fmt.Sprintf("roll back %s?", fleet.Count(countChanges(steps), "node")), flags.on, flags.yes); err != nil {
		return err
	}
	results, err := s.Rollback(a.ctx, steps, o)
	if results != nil {
		a.view.Result(results, func(io.Writer) {})
	}
	return err
}

func countChanges(steps []stages.Step) int {
	n := 0
	for _, s := range steps {
		if s.ChangesNode() {
			n++
		}
	}
	return n
}

func joinStepErrors(steps []stages.Step) error {
	var errs []error
	for _, s := range steps {
		errs = append(errs, s.Err)
	}
	return errors.Join(errs...)
}

func writeSteps(w io.Writer, steps []stages.Step) {
	var rows []ui.Row
	for _, s := range steps {
		rows = append(rows, ui.Row{s.Node.Name, s.String()})
	}
	ui.List(w, rows)
}

// stepView is what the rollback does on one node, in the output of --json.
type stepView struct {
	Node       string `json:"node"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
	Generation int    `json:"generation,omitempty"`
	Stays      string `json:"stays,omitempty"`
	Error      string `json:"error,omitempty"`
}

func stepViewsOf(steps []stages.Step) []stepView {
	out := []stepView{}
	for _, s := range steps {
		shown := stepView{Node: s.Node.Name, From: s.From.Current, To: s.Path, Generation: s.Generation, Stays: s.SkipReason}
		if s.Err != nil {
			shown.Error = s.Err.Error()
		}
		out = append(out, shown)
	}
	return out
}
