package main

import (
	"cmp"
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
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
)

const statusLong = `Show which system nodes run, failed units, whether a reboot is needed, and the
result of the last run. MEMBER and VERSION are the state of a node in its
cluster, such as Ready, and the version of the engine there.

Values of SYSTEM:
  as deployed     the system that the last run left
  other system    another system: it was deployed by other means, or rolled back
  never deployed  no run has deployed the node
  away            nothing answers, and the node has deployment.optional, or
                  --skip-unreachable is set
  not booted      the machine, which nixbench boots, is off, paused, crashed,
                  absent, or half there: its domain or disk is missing
  up to date, differs
                  with --drift: whether it is the system of the hive

If another node cannot be reached, the exit code is 6.`

func statusCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var drift, check, noHealth bool
	var format string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the system and the health of nodes",
		Long:    statusLong,
		Example: `  nixbench status --on @web --drift`,
	}
	cmd.RunE = a.withSession("", &flags, deploy.RemoteNodes, func(s *deploy.Session, _ []string) error {
		wide := format == "wide"
		status, err := s.Status(a.ctx, deploy.StatusOptions{Drift: drift, Figures: wide, Health: check && !noHealth})
		if status == nil {
			return err
		}
		if a.json && status.MembersErr != nil {
			a.sink.Warn("%v", status.MembersErr)
		}
		a.view.Result(status.Rows, func(w io.Writer) { writeStatus(w, status.Rows, wide, status.Notes...) })
		if check {
			err = errors.Join(err, status.MembersErr)
			if bad := status.Unhealthy(); bad != nil {
				err = errors.Join(err, newCheckError(bad))
			}
		}
		return err
	})
	f := cmd.Flags()
	flags.add(f)
	flags.addSkip(f)
	addChoice(f, &format, "output", "o", []string{"table", "wide"}, "`FORMAT`: wide also shows role, address, generation, uptime, and the use of processors, memory and disk")
	f.BoolVar(&drift, "drift", false, "evaluate the hive, and compare nodes with it; nothing is built")
	f.BoolVar(&check, "check", false, "exit with 9 unless each node that is not away runs its system without failed units, is a ready member of its cluster, and passes deployment.healthChecks")
	f.BoolVar(&noHealth, "no-health-checks", false, noHealthHelp)
	return cmd
}

// newCheckError returns the error of a check: some nodes or other checked things are not in the expected state.
func newCheckError(names []string) error {
	return failure.WithKind(failure.Check, errors.New("unhealthy, or not in the expected state: "+strings.Join(names, ", ")))
}

var statusColumns = []ui.Column[inspect.Status]{
	{Title: "NODE", Format: func(s inspect.Status) string { return s.Node }},
	{Title: "SYSTEM", Format: func(s inspect.Status) string { return s.System }},
	{Title: "UNITS", Format: formatUnits},
	{Title: "MEMBER", Format: ifKnown(memberOf, func(m engine.Status) string { return m.String() }), Optional: true},
	{Title: "VERSION", Format: ifKnown(memberOf, func(m engine.Status) string { return m.Version }), Optional: true},
	{Title: "LAST RUN", Format: formatLastRun},
	{Title: "MACHINE", Format: ifKnown(func(s inspect.Status) *machine.Status { return s.Machine }, func(m machine.Status) string { return m.State }), Optional: true},
}

var wideColumns = []ui.Column[inspect.Status]{
	{Title: "ROLE", Format: func(s inspect.Status) string { return s.Role }, Optional: true},
	{Title: "ADDRESS", Format: func(s inspect.Status) string { return s.Address }},
	{Title: "GENERATION", Format: formatGeneration},
	{Title: "UPTIME", Format: formatUptime},
	{Title: "PROCESSORS", Format: ifKnown(figuresOf, formatProcessors)},
	{Title: "MEMORY", Format: ifKnown(figuresOf, func(f inspect.Figures) string { return formatUse(f.MemoryUsed, f.Memory) })},
	{Title: "DISK", Format: ifKnown(figuresOf, func(f inspect.Figures) string { return formatUse(f.DiskUsed, f.Disk) })},
}

func memberOf(s inspect.Status) *engine.Status { return s.Member }

func figuresOf(s inspect.Status) *inspect.Figures { return s.Figures }

// ifKnown returns a function that formats a part of a value with format, or returns an empty string if the part is nil.
func ifKnown[S, T any](part func(S) *T, format func(T) string) func(S) string {
	return func(s S) string {
		if p := part(s); p != nil {
			return format(*p)
		}
		return ""
	}
}

func writeStatus(w io.Writer, rows []inspect.Status, wide bool, more ...string) {
	columns := statusColumns
	if wide {
		columns = slices.Concat(statusColumns, wideColumns)
	}
	ui.Table(w, ui.Rows(columns, rows))
	var notes, reboots []string
	for _, s := range rows {
		for _, note := range describeStatus(s) {
			notes = append(notes, s.Node+": "+note)
		}
		if s.Reboot {
			reboots = append(reboots, s.Node)
		}
	}
	if len(reboots) > 0 {
		notes = append(notes, strings.Join(reboots, ", ")+": the next boot uses another kernel: nixbench reboot --if-needed")
	}
	notes = slices.Concat(notes, describeCertificates(rows, time.Now()), more)
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range notes {
		ui.WriteText(w, note)
	}
}

func formatGeneration(s inspect.Status) string {
	switch {
	case s.Generation == 0 && s.Boots == 0:
		return ""
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
		return ""
	case len(s.FailedUnits) > 0:
		return fmt.Sprintf("%d failed", len(s.FailedUnits))
	case s.State == "running":
		return "ok"
	}
	return s.State
}

func formatUptime(s inspect.Status) string {
	if s.State == "" {
		return ""
	}
	return formatShortDuration(time.Duration(s.Uptime) * time.Second)
}

// formatLastRun formats how the last run on a node ended, and when: `rolled back 5m ago`.
func formatLastRun(s inspect.Status) string {
	r := s.LastRun
	if r == nil {
		return ""
	}
	what := cmp.Or(map[string]string{"committed": "done", "activated": "test", "boot": "boot", "rolled-back": "rolled back"}[r.Outcome], "failed")
	if r.Alive {
		what = "still running, started"
	}
	return what + " " + formatShortDuration(s.Time.Sub(r.Time)) + " ago"
}

// formatProcessors returns how many processors are busy, and how many there are: 0.4/4.
func formatProcessors(f inspect.Figures) string {
	if f.ProcessorsUsed == nil {
		return fmt.Sprint(f.Processors)
	}
	return fmt.Sprintf("%.1f/%d", *f.ProcessorsUsed, f.Processors)
}

// formatUse returns how many bytes are used, and how many there are: 1.5 GiB/4.0 GiB.
func formatUse(used, all int64) string {
	if all == 0 {
		return ""
	}
	return event.Size(used) + "/" + event.Size(all)
}

// formatShortDuration formats a duration in its one or two largest units: 3d4h, 2h10m, 5m, 12s.
func formatShortDuration(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch days := d / (24 * time.Hour); {
	case days >= 10:
		return fmt.Sprintf("%dd", days)
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, d/time.Hour%24)
	case d >= time.Minute:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return d.String()
}

func describeStatus(s inspect.Status) []string {
	var notes []string
	if s.Error != "" {
		return nil // no notes about a node that cannot be reached, because the command ends with its error
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
	if s.Unhealthy != "" {
		notes = append(notes, s.Unhealthy)
	}
	return notes
}

const (
	renewalNotice   = 30 * 24 * time.Hour  // how long before its end status reports a certificate that is not renewed by itself
	authorityNotice = 365 * 24 * time.Hour // how long before its end status reports an authority, whose replacement takes long
	renewalGrace    = 3 * 24 * time.Hour   // how long the renewal of a certificate may be overdue before status reports the certificate
)

// describeCertificates returns notes about certificates for which the user has to do something: one note about that certificate of the
// nodes that expires first, and one for each certificate authority.
func describeCertificates(rows []inspect.Status, now time.Time) []string {
	var first, authorities []string
	var ends time.Time
	for _, s := range rows {
		for _, c := range s.Certificates {
			note := describeExpiry(s.Node, c, now)
			switch {
			case note == "":
			case c.Authority && !slices.Contains(authorities, note): // all nodes have the same authorities
				authorities = append(authorities, note)
			case !c.Authority && (len(first) == 0 || c.Ends.Before(ends)):
				first, ends = []string{note}, c.Ends
			}
		}
	}
	return append(first, authorities...)
}

// describeExpiry returns a note about a certificate. It returns an empty string if the user does not have to do anything yet.
func describeExpiry(node string, c engine.Certificate, now time.Time) string {
	ends := c.Ends.Format(time.DateOnly)
	switch {
	case c.Authority && c.Ends.Sub(now) < authorityNotice:
		return fmt.Sprintf("authorities: %s ends on %s, and the cluster stops working then; nothing renews it: %s", c.Name, ends, c.Remedy)
	case c.Authority:
	case c.Renewer != "" && now.After(c.Due.Add(renewalGrace)):
		return fmt.Sprintf("certificates: %s of %s ends on %s; its renewal was due on %s: on that node, journalctl -u %s", c.Name, node, ends, c.Due.Format(time.DateOnly), c.Renewer)
	case c.Renewer == "" && c.Ends.Sub(now) < renewalNotice:
		return fmt.Sprintf("certificates: %s of %s ends on %s; nothing renews it: %s", c.Name, node, ends, c.Remedy)
	}
	return ""
}
