package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const statusLong = `Show the state of nodes: the running generation and the one that the next boot
uses, whether it is the deployed system, failed units, uptime, and the result of
the last run. It needs one login and one command per node, and changes nothing.

Values of SYSTEM:
  as deployed     the system that the last run left
  other system    another system: it was deployed by other means, or rolled back
  never deployed  no run has deployed the node
  not booted      the machine, which nixbench boots, does not run: MACHINE shows
                  whether it is off, paused, crashed, absent, or half created or
                  removed; apply starts it
  up to date, differs
                  with --drift: whether it is the system of the hive, which is
                  evaluated for this; nothing is built

A node that cannot be reached is shown as a row, and the exit code is 6. With
--check the exit code is 9 unless every node runs its system without failed
units. Use it in scripts and for monitoring.`

type statusFlags struct {
	fleetFlags
	drift, check bool
}

func (a *app) statusCommand() *cobra.Command {
	var flags statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the system and the health of nodes",
		Long:  statusLong,
		Example: `  nixbench status
  nixbench status --on @web --drift
  nixbench status --check --json`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.status(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.BoolVar(&flags.drift, "drift", false, "evaluate the hive, and compare nodes with it")
	f.BoolVar(&flags.check, "check", false, "exit with 9 if a node is not healthy or runs another system")
	return cmd
}

func (a *app) status(flags statusFlags) error {
	e, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if nodes, err = a.selectRemoteNodes(hive, nodes); err != nil {
		return err
	}
	recorded, err := a.loadState(e, hive)
	if err != nil {
		return err
	}
	conns := a.newFleet(hive, flags.fleetFlags, nil)
	defer conns.Close()
	inspections := make(chan []fleet.Outcome[activate.Node], 1)
	send := event.Sink(a.sendEvent)
	if flags.drift {
		send = nil // show the progress of the evaluation only, which takes longer
	}
	cluster := a.newMachines(e, hive, nil)
	cluster.Send = a.sendEvent
	machines, machinesErr := cluster.Status(a.ctx, recorded)
	bootedNodes := slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return machines[n.Name].Off() })
	go func() { inspections <- inspect.Nodes(a.ctx, conns, bootedNodes, flags.parallel, send) }()
	var desired map[string]nixeval.Closure
	var evalErr error
	if flags.drift {
		desired, evalErr = deploy.Instantiate(a.ctx, e, hive, nodes, true)
		if desired == nil {
			desired = map[string]nixeval.Closure{}
		}
	}
	inspected := <-inspections
	byName := map[string]fleet.Outcome[activate.Node]{}
	var answered []nixeval.Node
	for _, o := range inspected {
		byName[o.Node.Name] = o
		if o.Err == nil && hive.Unit(o.Node.Unit).Deployment.Engine != nil {
			answered = append(answered, o.Node)
		}
	}
	clusterEngines, enginesErr := engines.Of(hive, conns)
	certificates := inspect.Certificates(a.ctx, clusterEngines, answered, flags.parallel)
	reasons := inspect.FailureReasons(a.ctx, conns, inspected, flags.parallel)
	rows := make([]inspect.Status, len(nodes))
	for i, n := range nodes {
		o, asked := byName[n.Name]
		if !asked {
			o = fleet.Outcome[activate.Node]{Node: n, Err: &fleet.NoHostError{Node: n}}
		}
		rows[i] = inspect.StatusOf(o, recorded.Nodes[n.Name], desired, time.Now()).WithMachine(machines[n.Name])
		rows[i].Certificates, rows[i].Reasons = certificates[n.Name], reasons[n.Name]
	}
	a.view.Result(rows, func(w io.Writer) { writeStatus(w, rows, a.engineNotes(hive, time.Now())...) })
	errs := append([]error{machinesErr, evalErr, enginesErr}, fleet.Errors(inspected)...)
	if flags.check {
		errs = append(errs, checkStatus(rows))
	}
	return errors.Join(errs...)
}

// loadState reads the recorded state of the cluster. It does not take the cluster's lock.
func (a *app) loadState(e *nixeval.Evaluator, hive *nixeval.Hive) (*state.State, error) {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return nil, err
	}
	return dir.Load()
}

// checkError means that nodes or findings are not in the expected state. nodes contains their
// names.
type checkError struct{ nodes []string }

func (e *checkError) Error() string {
	return "unhealthy, or not in the expected state: " + strings.Join(e.nodes, ", ")
}

// Kind implements [failure.Classified].
func (e *checkError) Kind() failure.Kind { return failure.Check }

func checkStatus(rows []inspect.Status) error {
	var bad []string
	for _, s := range rows {
		if !s.Healthy() {
			bad = append(bad, s.Node)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return &checkError{bad}
}

// writeStatus prints the table of nodes, then notes about single nodes, then the other notes in
// more.
func writeStatus(w io.Writer, rows []inspect.Status, more ...string) {
	table := []ui.Row{{"NODE", "GENERATION", "SYSTEM", "UNITS", "UPTIME", "LAST RUN"}}
	for _, s := range rows {
		table = append(table, ui.Row{s.Node, formatGeneration(s), s.System, formatUnits(s), formatUptime(s), formatLastRun(s)})
	}
	if slices.ContainsFunc(rows, func(s inspect.Status) bool { return s.Machine != nil }) {
		table[0] = append(table[0], "MACHINE")
		for i, s := range rows {
			text := "-"
			if s.Machine != nil {
				text = s.Machine.State
			}
			table[i+1] = append(table[i+1], text)
		}
	}
	ui.Table(w, table)
	var notes []string
	for _, s := range rows {
		for _, note := range describeStatus(s) {
			notes = append(notes, s.Node+": "+note)
		}
	}
	for _, note := range append(describeCertificates(rows, time.Now()), more...) {
		if note != "" {
			notes = append(notes, note)
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	}
}

const (
	renewalNotice   = 30 * 24 * time.Hour  // how long before its end a certificate is reported
	authorityNotice = 365 * 24 * time.Hour // how long before its end an authority is reported; replacing an authority takes longer
	renewalGrace    = 3 * 24 * time.Hour   // how long a certificate's renewal may be overdue
)

// describeCertificates returns a note about the certificate that ends first, and a note for each
// authority that ends within authorityNotice.
func describeCertificates(rows []inspect.Status, now time.Time) []string {
	var node string
	var first engine.Certificate
	var notes, authorities []string
	for _, s := range rows {
		for _, c := range s.Certificates {
			switch {
			case !c.Authority && (node == "" || c.Ends.Before(first.Ends)):
				node, first = s.Node, c
			case c.Authority && c.Ends.Sub(now) < authorityNotice:
				// All nodes have the same authorities, so report each authority once.
				note := fmt.Sprintf("authorities: %s ends on %s, and the cluster stops working then; nothing renews it: %s", c.Name, c.Ends.Format(time.DateOnly), c.Remedy)
				if !slices.Contains(authorities, note) {
					authorities = append(authorities, note)
				}
			}
		}
	}
	if node != "" {
		notes = append(notes, describeFirstExpiry(node, first, now))
	}
	return append(notes, authorities...)
}

func describeFirstExpiry(node string, c engine.Certificate, now time.Time) string {
	left := c.Ends.Sub(now)
	text := fmt.Sprintf("certificates: %s of %s ends first, on %s", c.Name, node, c.Ends.Format(time.DateOnly))
	switch {
	case left < 0:
		text += ": it has ended"
	case left < renewalNotice:
		text += ", in " + formatShortDuration(left)
	}
	switch {
	case c.Renewer != "" && now.After(c.Due.Add(renewalGrace)):
		return fmt.Sprintf("%s; it should have been renewed since %s: on that node, journalctl -u %s", text, c.Due.Format(time.DateOnly), c.Renewer)
	case c.Renewer == "" && left < renewalNotice:
		return text + "; nothing renews it: " + c.Remedy
	}
	return fmt.Sprintf("%s (made on %s)", text, c.Begins.Format(time.DateOnly))
}

func formatGeneration(s inspect.Status) string {
	switch {
	case s.Generation == 0 && s.Boots == 0:
		return "-"
	case s.Generation == 0:
		return fmt.Sprintf("?, boots %d", s.Boots)
	case s.Current != s.BootDefault:
		return fmt.Sprintf("%d, boots %d", s.Generation, s.Boots)
	}
	return fmt.Sprint(s.Boots)
}

func formatUnits(s inspect.Status) string {
	switch {
	case s.State == "":
		return "-"
	case len(s.FailedUnits) > 0:
		return fmt.Sprintf("%d failed", len(s.FailedUnits))
	case s.State == "running":
		return "ok"
	}
	return s.State
}

func formatUptime(s inspect.Status) string {
	if s.State == "" {
		return "-"
	}
	return formatShortDuration(time.Duration(s.Uptime) * time.Second)
}

func formatLastRun(s inspect.Status) string {
	r := s.LastRun
	if r == nil {
		return "-"
	}
	what := map[string]string{
		"committed": "done", "activated": "test", "boot": "boot", "rolled-back": "rolled back", "rollback-failed": "failed",
	}[r.Outcome]
	switch {
	case r.Alive:
		what = "goes on,"
	case what == "":
		what = "failed"
	}
	return what + " " + formatShortDuration(s.Time.Sub(r.Time)) + " ago"
}

// describeStatus returns notes about a node that do not fit into the columns of the table.
func describeStatus(s inspect.Status) []string {
	var notes []string
	if s.Error != "" {
		return nil // finish prints the error of a node that cannot be reached
	}
	switch s.System {
	case inspect.OtherSystem:
		notes = append(notes, "runs "+s.Current, "last deployed: "+s.Deployed)
	case inspect.Drifted:
		notes = append(notes, "runs "+s.Current, "the hive has "+s.Wanted)
	}
	if s.LastRun != nil && s.LastRun.Alive {
		notes = append(notes, s.LastRun.Text)
	}
	if len(s.FailedUnits) > 0 {
		notes = append(notes, "failed units: "+strings.Join(s.FailedUnits, ", "))
		for _, unit := range slices.Sorted(maps.Keys(s.Reasons)) {
			notes = append(notes, unit+": "+s.Reasons[unit])
		}
	}
	if s.Reboot {
		notes = append(notes, "the next boot uses another kernel: nixbench reboot --if-needed")
	}
	return notes
}

// formatShortDuration formats a duration in its one or two largest units: 3d4h, 2h10m, 5m, 12s.
func formatShortDuration(d time.Duration) string {
	d = max(d, 0)
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case days >= 10:
		return fmt.Sprintf("%dd", days)
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}
