package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/inspect"
)

// statusColumn is a column of the table that `nixbench status` prints.
type statusColumn struct {
	title    string
	format   func(inspect.Status) string // the text of the cell; "-" if the node has no value
	optional bool                        // whether the table has the column only if a node has a value in it
	wide     bool                        // only with -o wide
}

var statusColumns = []statusColumn{
	{title: "NODE", format: func(s inspect.Status) string { return s.Node }},
	{title: "ROLE", format: func(s inspect.Status) string { return orDash(s.Role) }, optional: true},
	{title: "ADDRESS", format: func(s inspect.Status) string { return orDash(s.Address) }},
	{title: "GENERATION", format: formatGeneration},
	{title: "SYSTEM", format: func(s inspect.Status) string { return s.System }},
	{title: "UNITS", format: formatUnits},
	{title: "REBOOT", format: formatRebootNeeded, optional: true},
	{title: "MEMBER", format: formatMember, optional: true},
	{title: "VERSION", format: formatVersion, optional: true},
	{title: "UPTIME", format: formatUptime},
	{title: "PROCESSORS", format: formatProcessors, wide: true},
	{title: "MEMORY", format: formatMemory, wide: true},
	{title: "DISK", format: formatDisk, wide: true},
	{title: "LAST RUN", format: formatLastRun},
	{title: "MACHINE", format: formatMachine, optional: true},
}

// leastImportant are the titles of columns that are left out on a narrow terminal. The least important column is the first.
var leastImportant = []string{"ROLE", "UPTIME", "VERSION", "GENERATION", "ADDRESS", "LAST RUN", "MACHINE"}

// writeStatus prints the table of nodes, then the notes about single nodes, and then the notes in more.
func writeStatus(w io.Writer, rows []inspect.Status, wide bool, more ...string) {
	table := make([]ui.Row, len(rows)+1)
	for _, c := range statusColumns {
		hasValue := func(s inspect.Status) bool { return c.format(s) != "-" }
		if c.wide && !wide || c.optional && !slices.ContainsFunc(rows, hasValue) {
			continue
		}
		table[0] = append(table[0], c.title)
		for i, s := range rows {
			table[i+1] = append(table[i+1], c.format(s))
		}
	}
	var leaveOut []string
	if !wide {
		leaveOut = leastImportant
	}
	left := ui.Table(w, table, leaveOut...)
	var notes []string
	for _, s := range rows {
		for _, note := range describeStatus(s) {
			notes = append(notes, s.Node+": "+note)
		}
	}
	for _, note := range append(append([]string{describeReboots(rows)}, describeCertificates(rows, time.Now(), wide)...), more...) {
		if note != "" {
			notes = append(notes, note)
		}
	}
	if len(left) > 0 {
		notes = append(notes, "not shown on this narrow terminal: "+strings.Join(left, ", ")+" (-o wide shows all columns)")
	}
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		for j, line := range strings.Split(note, "\n") { // an error may have several lines
			if j == 0 {
				ui.WriteText(w, line, "  ")
			} else {
				ui.WriteText(w, line, "    ")
			}
		}
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
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

// formatLastRun formats how the last run on a node ended, and when: `rolled back 5m ago`.
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
		what = "still running, started"
	case what == "":
		what = "failed"
	}
	return what + " " + formatShortDuration(s.Time.Sub(r.Time)) + " ago"
}

func formatRebootNeeded(s inspect.Status) string {
	if s.Reboot {
		return "needed"
	}
	return "-"
}

func formatMember(s inspect.Status) string {
	if s.Member == nil {
		return "-"
	}
	return s.Member.String()
}

func formatVersion(s inspect.Status) string {
	if s.Member == nil {
		return "-"
	}
	return orDash(s.Member.Version)
}

// formatProcessors returns how many processors are busy, and how many there are: 0.4/4.
func formatProcessors(s inspect.Status) string {
	switch f := s.Figures; {
	case f == nil:
		return "-"
	case f.ProcessorsUsed == nil:
		return fmt.Sprint(f.Processors)
	default:
		return fmt.Sprintf("%.1f/%d", *f.ProcessorsUsed, f.Processors)
	}
}

func formatMemory(s inspect.Status) string {
	if s.Figures == nil {
		return "-"
	}
	return formatUse(s.Figures.MemoryUsed, s.Figures.Memory)
}

func formatDisk(s inspect.Status) string {
	if s.Figures == nil || s.Figures.Disk == 0 {
		return "-"
	}
	return formatUse(s.Figures.DiskUsed, s.Figures.Disk)
}

// formatUse returns how many bytes are used, and how many there are: 1.5 GiB/4.0 GiB.
func formatUse(used, all int64) string { return ui.FormatSize(used) + "/" + ui.FormatSize(all) }

func formatMachine(s inspect.Status) string {
	if s.Machine == nil {
		return "-"
	}
	return s.Machine.State
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
