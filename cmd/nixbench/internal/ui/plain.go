package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// plain writes plain lines, as for a log: finished phases, results and errors. With --verbose, it also writes builds and the logs
// of builds.
type plain struct {
	out, err io.Writer
	verbose  bool
	style    style
	started  map[event.Phase]time.Time // start of each phase
	began    map[string]time.Time      // time of each node's first event
}

// showEvent writes a line for an event that a log should contain. Other events write nothing.
func (p *plain) showEvent(e event.Event) {
	switch e.Kind {
	case event.PhaseStart:
		if p.started == nil {
			p.started = map[event.Phase]time.Time{}
		}
		p.started[e.Phase] = e.Time
		if e.Phase == event.Survey {
			fmt.Fprintf(p.err, "%-9s %s\n", "hive", e.Text)
		}
	case event.PhaseEnd:
		fmt.Fprintln(p.err, formatPhase(p.style, e, p.started[e.Phase], 0))
	case event.Message:
		fmt.Fprintln(p.err, formatMessage(p.style, e))
	case event.NodeStart:
		if p.began == nil {
			p.began = map[string]time.Time{}
		}
		if p.began[e.Node].IsZero() {
			p.began[e.Node] = e.Time
		}
		if p.verbose {
			fmt.Fprintf(p.err, "%-9s %s %s\n", e.Phase, e.Node, e.Text)
		}
	case event.NodeResult:
		fmt.Fprintln(p.err, formatResult(p.style, e, p.began[e.Node], 80))
	case event.NodeLog:
		if p.verbose {
			fmt.Fprintf(p.err, "%s> %s\n", e.Node, e.Text)
		}
	case event.BuildStart:
		if p.verbose {
			fmt.Fprintf(p.err, "%-9s %s\n", "building", trimStorePath(e.Path))
		}
	case event.BuildLog:
		if p.verbose {
			fmt.Fprintf(p.err, "%s> %s\n", trimStorePath(e.Path), e.Text)
		}
	}
}

// maxWaits is the maximum number of lines about waits that are written at the same time. Every node may have a wait.
const maxWaits = 5

func (p *plain) showWaits(late []event.Event) {
	for i, e := range late {
		if i == maxWaits-1 && len(late) > maxWaits {
			fmt.Fprintf(p.err, "%-9s … and %d more\n", "waiting", len(late)-i)
			return
		}
		fmt.Fprintf(p.err, "%-9s %s\n", "waiting", formatWait(e))
	}
}

// formatWait formats a wait: `web-1: keys: a lock (12s so far, at most 48s more)`.
func formatWait(e event.Event) string {
	var parts []string
	for _, part := range []string{e.Node, string(e.Phase), formatWaitReason(e)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	times := e.Time.Sub(e.Since).Round(time.Second).String() + " so far"
	if left := e.Until.Sub(e.Time).Round(time.Second); left > 0 {
		times += fmt.Sprintf(", at most %s more", left)
	}
	return fmt.Sprintf("%s (%s)", strings.Join(parts, ": "), times)
}

// formatWaitReason returns the reason of a wait. If the event contains progress, the progress comes first.
func formatWaitReason(e event.Event) string {
	text := storeHash.ReplaceAllString(firstLine(e.Text), "")
	switch {
	case e.Total == 0:
	case e.Phase == event.Copy:
		text = strings.TrimSuffix(fmt.Sprintf("%s of %s, %s", FormatSize(int64(e.Done)), FormatSize(int64(e.Total)), text), ", ")
	case e.Done > 0:
		text = strings.TrimSuffix(fmt.Sprintf("%d of %d, %s", e.Done, e.Total, text), ", ")
	}
	return text
}

func (p *plain) showOutput(node, line string) {
	fmt.Fprintf(p.out, "%s %s\n", p.style.bold(node)+p.style.faint(" |"), line)
}

func (p *plain) prepareRaw() {}

func (p *plain) showResult(_ any, human func(io.Writer)) { human(p.out) }

func (p *plain) showProblems(_ int, problems []Problem) { writeProblems(p.err, p.style, problems) }

func (p *plain) close() {}

// formatPhase formats a finished phase with its duration: `evaluate 2 units in 1 process 1.2s`.
func formatPhase(s style, e event.Event, started time.Time, width int) string {
	mark, text := "", e.Text
	if e.Failed {
		text = strings.TrimSuffix("failed; "+text, "; ")
	}
	switch {
	case !s.marks: // a log has a word such as "failed" in place of the mark ✗, because users search a log for words
	case e.Failed:
		mark = s.bad("✗") + " "
	default:
		mark = s.good("✓") + " "
	}
	return fmt.Sprintf("%s%-9s %s %s", mark, e.Phase, padRight(text, max(30, width-24)), formatDuration(e.Time.Sub(started)))
}

func formatMessage(s style, e event.Event) string {
	label := e.Level
	if label == "warning" {
		label = s.warn(label)
	}
	// Add the name of the node, unless the text contains it: texts of other programs, such as a node's Nix daemon, do not.
	names := func(word string) bool { return strings.Trim(word, ":,;") == e.Node }
	if e.Node != "" && !slices.ContainsFunc(strings.Fields(e.Text), names) {
		label += ": " + e.Node
	}
	return label + ": " + indent(e.Text, "  ")
}

func writeProblems(w io.Writer, s style, problems []Problem) {
	for _, p := range problems {
		where := ""
		if p.Where != "" {
			where = s.bold(p.Where) + ": "
		}
		fmt.Fprintf(w, "%s %s%s\n", s.bad("error:"), where, indent(p.Message, "  "))
		if p.Hint != "" {
			fmt.Fprintf(w, "%s %s\n", s.warn("hint:"), indent(p.Hint, "  "))
		}
	}
}

// indent indents all lines of text except the first, to distinguish them from the next message.
func indent(text, by string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		if line = strings.TrimRight(line, " \t"); i > 0 && line != "" {
			line = by + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// padRight appends spaces to s up to width columns.
func padRight(s string, width int) string {
	if n := width - len([]rune(s)); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

func formatDuration(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%4.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// trimStorePath returns the name in a store path, without folder, hash and .drv.
func trimStorePath(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if _, after, ok := strings.Cut(name, "-"); ok {
		name = after
	}
	return strings.TrimSuffix(name, ".drv")
}
