package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
)

func rollbackCommand(a *app) *cobra.Command {
	var flags rollingFlags
	var to string
	var yes, dry bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Roll back to the previous systems of nodes",
		Long: `Roll back to the systems that nodes ran before the last run that changed any of
the selected nodes. It neither changes nodes that this run did not change, nor
inspects them. Keys are not changed. It first shows the plan. A second rollback
undoes the first one, and the next nixbench apply deploys the hive again.`,
		Example: `  nixbench rollback --on web-1 --to 41
  nixbench rollback --to 20260501T1200 --yes`,
	}
	cmd.RunE = a.withView(func([]string) error {
		o, err := flags.toOptions()
		if err != nil {
			return err
		}
		if err := a.requireConfirmation("rollback", flags.on, yes || dry); err != nil {
			return err
		}
		set := func(r *deploy.Request) {
			if r.Nodes = deploy.RemoteNodes; !dry {
				r.Command, r.AllNodesOnly = "rollback", true
			}
		}
		return a.inSession(flags.fleetFlags, set, func(s *deploy.Session) error {
			steps, err := s.PlanRollback(a.ctx, to)
			if err != nil {
				return err
			}
			show := func(w io.Writer) {
				var rows []ui.Row
				for _, s := range steps {
					rows = append(rows, ui.Row{s.Node.Name, s.String()})
				}
				ui.List(w, rows)
			}
			if dry {
				a.view.Result(stepViewsOf(steps), show)
				return joinStepErrors(steps)
			}
			if slices.ContainsFunc(steps, stages.Step.ChangesNode) {
				a.announce(show)
			}
			return executeSteps(a, s, steps, o, "roll back", flags.on, yes, show)
		})
	})
	f := cmd.Flags()
	flags.add(f)
	f.StringVar(&to, "to", "", "roll back to this generation (see nixbench generations), or to the systems that this run left (see nixbench runs): `N|RUN`")
	f.BoolVar(&dry, "dry-run", false, "only show the plan")
	f.BoolVarP(&yes, "yes", "y", false, yesHelp)
	flags.addArming(f, rollbackHelp, []string{"node", "off"})
	return cmd
}

// executeSteps asks the user whether to carry out the steps of a rollback or a reboot, and does it. If no step changes a node, it
// calls nothing, which writes why.
func executeSteps(a *app, s *deploy.Session, steps []stages.Step, o stages.Options, verb string, on []string, yes bool, nothing func(io.Writer)) error {
	changing := len(slices.DeleteFunc(slices.Clone(steps), func(s stages.Step) bool { return !s.ChangesNode() }))
	if changing == 0 {
		a.view.Result(append([]state.NodeResult{}, s.Away...), nothing)
		return joinStepErrors(steps)
	}
	if err := a.confirm(fmt.Sprintf("%s %s?", verb, event.Count(changing, "node")), on, yes); err != nil {
		return err
	}
	results, err := s.Execute(a.ctx, steps, o)
	if results != nil {
		a.view.Result(results, func(io.Writer) {})
	}
	return err
}

func joinStepErrors(steps []stages.Step) error {
	var errs []error
	for _, s := range steps {
		errs = append(errs, s.Err)
	}
	return errors.Join(errs...)
}

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

type generation struct {
	Node string `json:"node"`
	activate.Generation
}

func generationsCommand(a *app) *cobra.Command {
	var flags fleetFlags
	cmd := &cobra.Command{
		Use:   "generations",
		Short: "List the generations of nodes",
		Long: `List the systems that nodes can roll back to with nixbench rollback --to N: the
entries of their system profile, the newest first. The default is the one
that the next boot uses.`,
	}
	cmd.RunE = a.withSession("", &flags, deploy.RemoteNodes, func(s *deploy.Session, _ []string) error {
		inspected := s.Inspect(a.ctx)
		list := []generation{}
		for _, o := range inspected {
			for _, g := range slices.Backward(o.Value.Generations) {
				list = append(list, generation{o.Node.Name, g})
			}
		}
		a.view.Result(list, func(w io.Writer) { writeGenerations(w, list) })
		return errors.Join(fleet.Errors(inspected)...)
	})
	flags.add(cmd.Flags())
	return cmd
}

func writeGenerations(w io.Writer, list []generation) {
	rows := []ui.Row{{"NODE", "GENERATION", "DATE", "VERSION", ""}}
	for _, g := range list {
		var marks []string
		for _, m := range []struct {
			has  bool
			name string
		}{{g.Current, "current"}, {g.Booted, "booted"}, {g.Default, "default"}} {
			if m.has {
				marks = append(marks, m.name)
			}
		}
		rows = append(rows, ui.Row{g.Node, fmt.Sprint(g.Number), g.Time.Local().Format("2006-01-02 15:04"), cmp.Or(g.Version, "-"), strings.Join(marks, ", ")})
	}
	ui.Table(w, rows)
}
