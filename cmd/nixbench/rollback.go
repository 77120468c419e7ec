package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
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

func (a *app) rollbackCommand() *cobra.Command {
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
	cmd.RunE = a.withView(func([]string) error { return a.rollback(flags) })
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

func (f *rollbackFlags) toOptions() (deploy.RollbackOptions, error) {
	o := deploy.RollbackOptions{Parallel: f.parallel, WithoutDrain: f.drain.noDrain}
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

// parseRollbackTo parses --to: a generation or the name of a run. A run's name begins with a date,
// and no generation has as many digits as a date.
func parseRollbackTo(text string, dir state.Dir) (deploy.RollbackTo, error) {
	if text == "" {
		return deploy.RollbackTo{}, nil
	}
	if n, err := strconv.Atoi(text); err == nil && len(text) < len("20060102") {
		if n < 1 {
			return deploy.RollbackTo{}, newUsageError("--to must be at least 1 (it is %s), or a run", text)
		}
		return deploy.RollbackTo{Generation: n}, nil
	}
	run, err := runs.Open(dir, text)
	if err != nil {
		return deploy.RollbackTo{}, newUsageError("--to: %w", err)
	}
	return deploy.RollbackTo{Run: run}, nil
}

func (a *app) rollback(flags rollbackFlags) error {
	o, err := flags.toOptions()
	if err != nil {
		return err
	}
	if err := a.requireConfirmation("rollback", flags.on, flags.yes || flags.dry); err != nil {
		return err
	}
	e, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if err := checkApplyAll("rollback", e, hive, flags.on); err != nil && !flags.dry {
		return err
	}
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	to, err := parseRollbackTo(flags.to, dir)
	if err != nil {
		return err
	}
	recorded, err := dir.Load()
	if err != nil {
		return err
	}
	if !flags.dry {
		if err := checkUnlocked(dir); err != nil {
			return err
		}
	}
	conns := a.newFleet(hive, flags.fleetFlags, nil)
	defer conns.Close()
	steps, err := deploy.PlanRollback(inspect.Nodes(a.ctx, conns, nodes, flags.parallel, a.sendEvent), recorded.Nodes, to)
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
	return a.runRecorded(e, hive, "rollback", func(s *session) error {
		if now := s.store.State(); !reflect.DeepEqual(now.Nodes, recorded.Nodes) {
			return failure.WithHint(errors.New("rollback: another run has changed nodes in the meantime"), "show the plan again: nixbench rollback --dry-run")
		}
		d := &deploy.Deployer{Fleet: conns, Activator: &activate.Activator{Send: s.send}, Store: s.store, Record: s.record, Send: s.send, Engines: a.engines()}
		results, err := d.Rollback(a.ctx, steps, o)
		a.view.Result(results, func(io.Writer) {})
		return err
	})
}

func countChanges(steps []deploy.Step) int {
	n := 0
	for _, s := range steps {
		if s.ChangesNode() {
			n++
		}
	}
	return n
}

func joinStepErrors(steps []deploy.Step) error {
	var errs []error
	for _, s := range steps {
		errs = append(errs, s.Err)
	}
	return errors.Join(errs...)
}

func writeSteps(w io.Writer, steps []deploy.Step) {
	var rows []ui.Row
	for _, s := range steps {
		rows = append(rows, ui.Row{s.Node.Name, s.String()})
	}
	ui.List(w, rows)
}

// stepView is a step of the rollback, for one node, in the output of --json.
type stepView struct {
	Node       string `json:"node"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
	Generation int    `json:"generation,omitempty"`
	Stays      string `json:"stays,omitempty"`
	Error      string `json:"error,omitempty"`
}

func stepViewsOf(steps []deploy.Step) []stepView {
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
