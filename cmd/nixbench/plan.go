package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
)

const planLong = `Show what nixbench apply would do, node by node: whether the system changes,
what has to be copied, whether the new kernel needs a reboot, which of
deployment.keys differ, and how the machine of the node changes. Nothing is
written on the nodes.

Below the table are the packages that differ from those of the running system (+
added, ~ changed, - removed), once for all nodes where they are the same. If the
running system is in the local store, the systemd units and the files of /etc
that differ are listed, too. Then plan shows the order in which nodes change,
which nodes are drained, and a summary. It fails if apply would refuse the
change.

--units also shows which systemd units a switch would change. For this, the
closure is copied to the node; nothing is activated.

With --exit-code, the exit code is 11 if apply would change anything, and 9 if
the cluster does not answer. --out writes the plan to a file that nixbench apply
FILE executes. It contains no secrets.`

type planFlags struct {
	fleetFlags
	drain                              drainFlags
	units, noKeys, keepGoing, recreate bool
	maxUnavailable                     string
	exitCode                           bool
	out                                string
}

func planCommand(a *app) *cobra.Command {
	var flags planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long:  planLong,
		Example: `  nixbench plan
  nixbench plan --on @web --units
  nixbench plan --out web.plan && nixbench apply web.plan
  nixbench plan --json | tail -n 1 | jq '.result[] | {node, action}'`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runPlan(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.BoolVar(&flags.units, "units", false, "copy the systems, and show which units a switch would change")
	f.BoolVar(&flags.noKeys, "no-keys", false, "do not compare deployment.keys")
	f.BoolVar(&flags.recreate, "recreate", false, "show the plan of apply --recreate")
	flags.drain.add(f, "show the plan of apply --no-drain")
	f.StringVar(&flags.maxUnavailable, "max-unavailable", "", "show the plan of apply --max-unavailable `N|P%`")
	f.BoolVar(&flags.keepGoing, "keep-going", false, "show the other nodes if some cannot be evaluated or built")
	f.BoolVar(&flags.exitCode, "exit-code", false, "exit with 11 if apply would change anything")
	f.StringVarP(&flags.out, "out", "o", "", "write the plan to `FILE`, for nixbench apply FILE")
	return cmd
}

// toOptions validates the flags, and converts them to the options of the apply that `nixbench plan` previews.
func (f *planFlags) toOptions() (stages.Options, error) {
	o := stages.Options{
		Options:  plan.Options{WithoutKeys: f.noKeys, WithoutDrain: f.drain.noDrain},
		Parallel: f.parallel, Units: f.units, KeepGoing: f.keepGoing, Partial: len(f.on) > 0, Recreate: f.recreate,
	}
	var err error
	if o.Drain, err = f.drain.toOptions(); err != nil {
		return o, err
	}
	o.MaxUnavailable, err = selection.ParseShare(f.maxUnavailable)
	return o, err
}

func runPlan(a *app, flags planFlags) error {
	options, err := flags.toOptions()
	if err != nil {
		return err
	}
	if err := checkPlanFile(a, flags); err != nil {
		return err
	}
	s, err := a.open(flags.fleetFlags, func(r *deploy.Request) {
		r.Keys, r.Nodes = !flags.noKeys, deploy.DeployedNodes
		if flags.units {
			r.Command = "plan"
		}
	})
	if err != nil {
		return err
	}
	defer s.Close()
	made, err := s.Plan(a.ctx, options)
	if err == nil && flags.out != "" {
		err = s.SavePlan(a.ctx, flags.out, stages.PlanArguments{
			Sets: append([]string{}, a.sets...), NoKeys: flags.noKeys, Recreate: flags.recreate,
			NoDrain: flags.drain.noDrain, DrainAllowed: append([]string{}, flags.drain.allowed()...), MaxUnavailable: flags.maxUnavailable,
		}, made)
	}
	if made.Nodes != nil {
		a.view.Result(made.Nodes, func(w io.Writer) { writePreviews(w, made.Nodes) })
	}
	switch {
	case err != nil || !flags.exitCode:
	case made.Unknown != nil:
		err = made.Unknown
	case made.Changes():
		err = errChanges
	}
	return err
}

// errChanges is the error of `plan --exit-code` if apply would change something.
var errChanges = failure.WithKind(failure.Changes, errors.New("apply would make these changes"))

// writePreviews writes a plan as text: a table of the nodes, then the details, the order of the changes and a summary.
func writePreviews(w io.Writer, previews []stages.Preview) {
	rows := []ui.Row{{"NODE", "WOULD", "COPY", "REBOOT", "KEYS"}}
	for _, p := range previews {
		rows = append(rows, ui.Row{p.Node, p.Action, formatCopy(p), formatReboot(p), formatKeyChanges(p.Keys)})
	}
	if slices.ContainsFunc(previews, func(p stages.Preview) bool { return p.Machine != nil }) {
		rows[0] = append(rows[0], "MACHINE")
		for i, p := range previews {
			rows[i+1] = append(rows[i+1], formatMachineChange(p.Machine))
		}
	}
	if slices.ContainsFunc(previews, func(p stages.Preview) bool { return p.Version != nil }) {
		rows[0] = append(rows[0], "VERSION")
		for i, p := range previews {
			rows[i+1] = append(rows[i+1], formatVersionChange(p.Version))
		}
	}
	ui.Table(w, rows)
	for _, p := range previews {
		writeUnitChanges(w, p)
	}
	writeDiffs(w, previews)
	writeDrains(w, previews)
	adjust := map[string][]string{}
	for _, p := range previews {
		if len(p.Adjust) > 0 {
			adjust[p.Node] = p.Adjust
		}
	}
	for i, line := range rollout.AdjustmentLines(adjust) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		ui.WriteText(w, line, "  ")
	}
	writeOrder(w, previews)
	fmt.Fprintln(w)
	ui.WriteText(w, describeChanges(previews), "  ")
}

// formatVersionChange formats an upgrade of the cluster's software: `1.34.3 → 1.34.4`.
func formatVersionChange(v *engine.Change) string {
	if v == nil {
		return "-"
	}
	return v.From + " → " + v.To
}

// formatMachineChange formats the change of a node's machine: `create on default, 192.168.222.4`.
func formatMachineChange(m *stages.MachinePreview) string {
	if m == nil {
		return "-"
	}
	text := string(m.Action)
	if m.Action == changes.Create && m.Address.IsValid() {
		text += " on " + m.Hypervisor + ", " + m.Address.String()
	}
	if m.Why != "" {
		text += ": " + m.Why
	}
	return text
}

func formatCopy(p stages.Preview) string {
	switch {
	case p.Copy == nil:
		return "?"
	case p.Copy.Paths == 0:
		return "-"
	case p.Copy.Paths == 1:
		return "1 path, " + ui.FormatSize(p.Copy.Bytes)
	}
	return fmt.Sprintf("%d paths, %s", p.Copy.Paths, ui.FormatSize(p.Copy.Bytes))
}

func formatReboot(p stages.Preview) string {
	switch {
	case p.Reboot == nil:
		return "?"
	case *p.Reboot:
		return "needed"
	}
	return "-"
}

// formatKeyChanges formats how many keys of a node change: `upload 2, remove 1`.
func formatKeyChanges(k *stages.KeysPreview) string {
	if k == nil {
		return "-"
	}
	var parts []string
	for _, c := range []struct {
		names []string
		verb  string
	}{{k.Upload, "upload"}, {k.Adjust, "adjust"}, {k.Remove, "remove"}, {k.Restart, "restart units"}} {
		if len(c.names) > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c.verb, len(c.names)))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// writeUnitChanges writes which systemd units the switch of a node would change, if the plan contains them.
func writeUnitChanges(w io.Writer, p stages.Preview) {
	u := p.Units
	if u == nil {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", p.Node)
	none := true
	for _, c := range []struct {
		verb  string
		units []string
	}{{"stop", u.Stop}, {"restart", u.Restart}, {"reload", u.Reload}, {"start", u.Start}, {"leave", u.Skip}} {
		if len(c.units) > 0 {
			none = false
			ui.WriteList(w, fmt.Sprintf("  %-8s ", c.verb), c.units, "           ")
		}
	}
	if none {
		fmt.Fprintln(w, "  no active unit changes")
	}
}
