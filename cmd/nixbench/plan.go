package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

const planLong = `Show what nixbench apply would do, node by node: whether the system changes,
what has to be copied, whether the new kernel needs a reboot, which of
deployment.keys differ, and how the machine of the node changes. Nothing is
written on the nodes. It fails if apply would refuse the change.

Below the table are the packages that differ from those of the running system (+
added, ~ changed, - removed) and, if the running system is in the local store,
the systemd units and the files of /etc. Then follow the order in which nodes
change, and a summary. nixbench apply dry-activate shows which systemd units a
switch would restart.`

func planCommand(a *app) *cobra.Command {
	var flags rollingFlags
	var exitCode bool
	var out string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long:  planLong,
		Example: `  nixbench plan --out web.plan && nixbench apply web.plan
  nixbench plan --json | tail -n 1 | jq '.result[] | {node, action}'`,
	}
	cmd.RunE = a.withView(func([]string) error {
		options, err := flags.toOptions()
		if err != nil {
			return err
		}
		if err := checkPlanFile(a, out, options.KeepGoing); err != nil {
			return err
		}
		return a.inSession(flags.fleetFlags, onNodes("", deploy.DeployedNodes), func(s *deploy.Session) error {
			made, err := s.Plan(a.ctx, options, out, stages.PlanArguments{
				Sets: append([]string{}, a.sets...), NoKeys: options.WithoutKeys, Recreate: options.Recreate,
				NoDrain: options.WithoutDrain, DrainAllowed: append([]string{}, options.Drain.Allowed...), MaxUnavailable: flags.maxUnavailable, SkipUnreachable: flags.skipUnreachable,
			})
			if made.Nodes != nil {
				a.view.Result(made.Nodes, func(w io.Writer) { writePreviews(w, made.Nodes) })
			}
			switch {
			case err != nil || !exitCode:
			case made.Unknown != nil:
				err = made.Unknown
			case made.Changes():
				err = errChanges
			}
			return err
		})
	})
	f := cmd.Flags()
	flags.add(f)
	f.BoolVar(&flags.options.WithoutKeys, "no-keys", false, "do not compare deployment.keys")
	f.BoolVar(&flags.options.Recreate, "recreate", false, "show the plan of apply --recreate")
	f.BoolVar(&flags.options.KeepGoing, "keep-going", false, "show the other nodes if some cannot be evaluated or built")
	f.BoolVar(&exitCode, "exit-code", false, "exit with 11 if apply would change anything, and with 9 if the cluster does not answer")
	f.StringVarP(&out, "out", "o", "", "write the plan, without secrets, to `FILE`, for nixbench apply FILE")
	return cmd
}

var errChanges = failure.WithKind(failure.Changes, errors.New("apply would make these changes"))

// checkPlanFile returns an error if --out cannot write its file, out. It is called before anything is evaluated.
func checkPlanFile(a *app, out string, keepGoing bool) error {
	if out == "" {
		return nil
	}
	if keepGoing {
		return failure.NewUsage("--out and --keep-going exclude each other: a plan file contains all selected nodes")
	}
	for _, set := range a.sets {
		if runs.SafeArgs([]string{set})[0] != set {
			path, _, _ := strings.Cut(set, "=")
			return failure.NewUsage("--out: --set %s seems to contain a secret, and a plan file must not; use deployment.keys", path)
		}
	}
	if safe := runs.RemoveURLSecrets(a.request.Flake); safe != a.request.Flake {
		return failure.WithHint(failure.NewUsage("--out: --flake %s contains a secret, and a plan file must not", safe),
			"Nix's option access-tokens, and ~/.netrc, contain the credentials of flakes")
	}
	return checkOutput("--out", out, stages.IsPlan)
}

// checkOutput returns an error if a command cannot write the file that a flag names. If the file exists, isReplaceable says
// whether it may be replaced. An empty file, such as mktemp creates, may always be replaced.
func checkOutput(flag, file string, isReplaceable func(file string) bool) error {
	info, err := os.Stat(file)
	switch dir := filepath.Dir(file); {
	case err == nil && !info.Mode().IsRegular():
		return failure.NewUsage("%s %s: it exists and is not a file", flag, file)
	case err == nil && info.Size() > 0 && !isReplaceable(file):
		return failure.WithHint(failure.NewUsage("%s %s: the file exists, and nixbench does not replace it", flag, file), "choose another name, or remove the file")
	case !durable.Exists(dir + "/"): // with the slash, a file is no folder
		return failure.NewUsage("%s %s: there is no folder %s", flag, file, dir)
	}
	return nil
}

var planColumns = []ui.Column[stages.Preview]{
	{Title: "NODE", Format: func(p stages.Preview) string { return p.Node }},
	{Title: "WOULD", Format: func(p stages.Preview) string { return p.Action }},
	{Title: "COPY", Format: formatCopy},
	{Title: "REBOOT", Format: func(p stages.Preview) string {
		if p.Reboot == nil {
			return "?"
		}
		return map[bool]string{true: "needed"}[*p.Reboot]
	}},
	{Title: "KEYS", Format: ifKnown(func(p stages.Preview) *stages.KeysPreview { return p.Keys }, formatKeyChanges)},
	{Title: "CHECKS", Optional: true, Format: func(p stages.Preview) string {
		if p.HealthChecks == 0 {
			return ""
		}
		return fmt.Sprint(p.HealthChecks)
	}},
	{Title: "MACHINE", Optional: true, Format: ifKnown(func(p stages.Preview) *stages.MachinePreview { return p.Machine }, formatMachineChange)},
	{Title: "VERSION", Optional: true, Format: ifKnown(func(p stages.Preview) *engine.Change { return p.Version },
		func(c engine.Change) string { return c.From + " → " + c.To })},
}

// writePreviews writes a plan as text: a table of the nodes, then the details, the order of the changes and a summary.
func writePreviews(w io.Writer, previews []stages.Preview) {
	ui.Table(w, ui.Rows(planColumns, previews))
	var diffs []packages.Group
	for _, p := range previews {
		diffs = packages.AddNode(diffs, p.Node, p.Diff)
	}
	writeDiffs(w, diffs, false)
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
		ui.WriteText(w, line)
	}
	writeOrder(w, previews)
	fmt.Fprintln(w)
	ui.WriteText(w, describeChanges(previews))
}

// formatMachineChange formats the change of a node's machine: `create on default, 192.168.222.4`.
func formatMachineChange(m stages.MachinePreview) string {
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
		return ""
	}
	return event.Count(p.Copy.Paths, "path") + ", " + event.Size(p.Copy.Bytes)
}

// formatKeyChanges formats how many keys of a node change: `upload 2, remove 1`.
func formatKeyChanges(k stages.KeysPreview) string {
	var parts []string
	for _, c := range []struct {
		names []string
		verb  string
	}{{k.Upload, "upload"}, {k.Adjust, "adjust"}, {k.Remove, "remove"}, {k.Restart, "restart units"}} {
		if len(c.names) > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c.verb, len(c.names)))
		}
	}
	return strings.Join(parts, ", ")
}

// maxChangedPackages is the maximum number of packages that apply lists for a group of nodes.
const maxChangedPackages = 10

// writeDiffs writes by how much closures grow, which packages change, and which units and files. Nodes on which the same packages change
// share one list. The short form, for the end of apply, has at most maxChangedPackages packages, and no units and files.
func writeDiffs(w io.Writer, groups []packages.Group, short bool) {
	for _, g := range groups {
		fmt.Fprintln(w)
		last := len(g.Nodes) - 1
		ui.WriteList(w, "", append(slices.Clone(g.Nodes[:last]), g.Nodes[last]+": closure "+event.Growth(g.Diff.Bytes)), "  ")
		for i, c := range g.Diff.Packages {
			if more := len(g.Diff.Packages) - i; short && i == maxChangedPackages && more > 1 {
				fmt.Fprintf(w, "  and %d more packages: nixbench runs last lists them\n", more)
				break
			}
			ui.WriteText(w, "  "+formatPackageChange(c))
		}
		if !short {
			writeFiles(w, "units", g.Diff.Units)
			writeFiles(w, "/etc", g.Diff.Etc)
		}
	}
}

// writeFiles writes the files that differ, such as "  units: + new.service ~ nginx.service - old.service".
func writeFiles(w io.Writer, title string, f *packages.Files) {
	if f == nil || f.Empty() {
		return
	}
	var parts []string
	for _, names := range []struct {
		mark  string
		files []string
	}{{"+", f.Added}, {"~", f.Changed}, {"-", f.Removed}} {
		for _, name := range names.files {
			parts = append(parts, names.mark+" "+name)
		}
	}
	const most = 12
	if more := len(parts) - most; more > 1 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	ui.WriteList(w, "  "+title+": ", parts, "    ")
}

// formatPackageChange formats the change of a package: `+ hello 2.12, +1.9 MiB`, `- hello 2.12` or `~ curl 8.9 → 8.10`.
func formatPackageChange(c packages.Change) string {
	text := strings.TrimSpace(c.Mark() + " " + c.Name + " " + c.Versions())
	if max(c.Bytes, -c.Bytes) >= 1<<10 {
		text += ", " + event.Growth(c.Bytes)
	}
	return text
}

func writeDrains(w io.Writer, previews []stages.Preview) {
	write := func(title string, items []engine.DrainItem) {
		var rows []ui.Row
		for _, item := range items {
			rows = append(rows, ui.Row{"  " + item.Work, item.Reason})
		}
		if len(rows) > 0 {
			fmt.Fprintf(w, "\n%s:\n", title)
			ui.List(w, rows)
		}
	}
	for _, p := range previews {
		if p.Drain != nil {
			write(p.Node+": the drain would be refused", p.Drain.Blocked)
			write(p.Node+": the drain would delete", p.Drain.Deleted)
		}
	}
}

// writeOrder writes the waves in which nodes change, and which nodes are drained, unless all nodes change at the same time.
func writeOrder(w io.Writer, previews []stages.Preview) {
	var waves [][]string
	var removed []string
	drains := false
	for _, p := range previews {
		if p.Action == plan.WouldRemove {
			removed = append(removed, p.Node)
		}
		if p.Wave == 0 {
			continue
		}
		for len(waves) < p.Wave {
			waves = append(waves, nil)
		}
		name := p.Node
		if p.Drained {
			name, drains = name+" (drained)", true
		}
		waves[p.Wave-1] = append(waves[p.Wave-1], name)
	}
	if len(waves) < 2 && !drains && (len(waves) == 0 || len(removed) == 0) {
		return
	}
	fmt.Fprintln(w, "\norder:")
	for i, nodes := range waves {
		ui.WriteList(w, fmt.Sprintf("  %d. ", i+1), nodes, "     ")
	}
	if len(removed) > 0 {
		last := len(removed) - 1
		ui.WriteList(w, "  at the end: ", append(removed[:last:last], removed[last]+" removed"), "    ")
	}
}

// describeChanges returns the summary of a plan, in one line. It begins with the changes that cannot be undone.
func describeChanges(previews []stages.Preview) string {
	nodes, machines := map[string]int{}, map[changes.Action]int{}
	for _, p := range previews {
		nodes[p.Action]++
		if p.Machine != nil && p.Action != plan.WouldRemove {
			machines[p.Machine.Action]++
		}
	}
	var parts []string
	add := func(n int, text string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	add(nodes[plan.WouldRemove], "removed")
	add(machines[changes.Recreate], "with a recreated machine")
	add(machines[changes.Restart], "with a restarted machine")
	add(machines[changes.Create], "with a new machine")
	for _, action := range []string{plan.WouldFirst, plan.WouldSwitch, plan.WouldDefault, plan.WouldKeys, plan.NotRunning, plan.NotReachable, plan.Away, plan.WouldRefuse, plan.NotBuilt, plan.WouldNothing} {
		add(nodes[action], action)
	}
	if len(parts) == 0 {
		return "nodes: none"
	}
	return "nodes: " + strings.Join(parts, ", ")
}
