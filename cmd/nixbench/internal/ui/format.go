package ui

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
)

// formatEvent returns the line about an event: a finished phase, a message, a result, and with --verbose also what begins, and
// logs. It returns an empty string for other events. began is when the phase or the node of the event began.
func (v *View) formatEvent(e event.Event, began time.Time) string {
	width := 80
	if v.live != nil {
		columns, _ := v.live.size()
		width = min(columns, 80)
	}
	switch {
	case e.Kind == event.PhaseStart && e.Phase == event.Survey:
		return fmt.Sprintf("%-9s %s", "hive", e.Text)
	case e.Kind == event.PhaseEnd:
		return formatPhase(v.style, e, began, width)
	case e.Kind == event.Message:
		return formatMessage(v.style, e)
	case e.Kind == event.NodeResult:
		return formatResult(v.style, e, began, width)
	case !v.verbose:
	case e.Kind == event.NodeStart:
		return fmt.Sprintf("%-9s %s %s", e.Phase, e.Node, e.Text)
	case e.Kind == event.NodeLog:
		return v.style.faint(e.Node+"> ") + e.Text
	case e.Kind == event.BuildStart:
		return fmt.Sprintf("%-9s %s", "building", trimStorePath(e.Path))
	case e.Kind == event.BuildLog:
		return v.style.faint(trimStorePath(e.Path)+"> ") + e.Text
	}
	return ""
}

func formatPhase(s style, e event.Event, began time.Time, width int) string {
	text := e.Text
	if e.Failed {
		text = strings.TrimSuffix("failed; "+text, "; ")
	}
	room := max(30, width-24) // the durations of results are in the same column
	return fmt.Sprintf("%s%-9s %s %s", s.mark(e.Failed), e.Phase, padRight(text, room), formatDuration(e.Time.Sub(began)))
}

func formatResult(s style, e event.Event, began time.Time, width int) string {
	clock := ""
	if !began.IsZero() {
		clock = " " + formatDuration(e.Time.Sub(began))
	}
	name, text := e.Node, firstLine(e.Text)
	if s.marks { // do not shorten names in a log
		name = truncate(name, 30)
	}
	// room is the width for the text of the result. The duration follows, aligned with the durations of phases.
	room := max(24, width-17-max(15, len([]rune(name))))
	mark := s.mark(e.Failed)
	if s.marks {
		if strings.HasPrefix(text, string(state.Skipped)) { // no failure of this node
			mark = "- "
		}
		if e.Failed {
			text = strings.TrimPrefix(text, "failed: ")
		}
		text = truncate(text, room)
	}
	return fmt.Sprintf("  %s%-15s %s%s", mark, name, padRight(text, room), clock)
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

// formatWait formats an activity without output: `web-1: keys: a lock (12s so far, at most 48s more)`.
func formatWait(a *activity, now time.Time) string {
	var parts []string
	for _, part := range []string{a.Node, string(a.Phase), a.describe(now)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	times := now.Sub(a.Since).Round(time.Second).String() + " so far"
	if left := a.Until.Sub(now).Round(time.Second); left > 0 {
		times += fmt.Sprintf(", at most %s more", left)
	}
	return fmt.Sprintf("%s (%s)", strings.Join(parts, ": "), times)
}

func formatProblems(s style, problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		where := ""
		if p.Where != "" {
			where = s.bold(event.Printable(p.Where)) + ": "
		}
		fmt.Fprintf(&b, "%s %s%s\n", s.bad("error:"), where, indent(event.Printable(p.Message), "  "))
		if p.Hint != "" {
			fmt.Fprintf(&b, "%s %s\n", s.warn("hint:"), indent(event.Printable(p.Hint), "  "))
		}
	}
	return b.String()
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

func padRight(s string, width int) string {
	if n := width - len([]rune(s)); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

func formatDuration(d time.Duration) string { return fmt.Sprintf("%5s", explain.Seconds(d)) }

// trimStorePath returns the name in a store path, without folder, hash and .drv.
func trimStorePath(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if _, after, ok := strings.Cut(name, "-"); ok {
		name = after
	}
	return strings.TrimSuffix(name, ".drv")
}

// storeHash matches the beginning of a store path: the store folder and the hash. It is removed to shorten lines.
var storeHash = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-`)

// firstLine returns the first line of a printable text, without tabs.
func firstLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ReplaceAll(first, "\t", " ")
}

func truncate(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// style colours text and marks results, such as with ✗. The zero value leaves text unchanged.
type style struct{ colour, marks bool }

// terminalStyle returns the style for a terminal. when is the value of --color.
func terminalStyle(when string) style {
	return style{colour: when == "always" || when != "never" && os.Getenv("NO_COLOR") == "", marks: true}
}

// mark returns the mark of a result on a terminal. A log has words such as "failed" in its place, for which users can search.
func (s style) mark(failed bool) string {
	switch {
	case !s.marks:
		return ""
	case failed:
		return s.bad("✗") + " "
	}
	return s.good("✓") + " "
}

func (s style) colourText(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string  { return s.colourText("1", text) }
func (s style) faint(text string) string { return s.colourText("2", text) }
func (s style) good(text string) string  { return s.colourText("32", text) }
func (s style) warn(text string) string  { return s.colourText("33", text) }
func (s style) bad(text string) string   { return s.colourText("1;31", text) }
