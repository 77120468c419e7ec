package ui

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// live shows live lines at the bottom of the terminal: one for the phase for which the run waits, and one for each node in
// progress. The methods of a nil live do nothing.
type live struct {
	err   io.Writer
	size  func() (width, height int)
	drawn int  // number of live lines on the screen
	still bool // draw no live lines any more
}

func newLive(err io.Writer) *live {
	return &live{err: err, size: func() (int, int) {
		if w, h := terminalSize(err); w > 0 && h > 0 {
			return w, h
		}
		return 80, 24
	}}
}

func (l *live) clear() {
	if l == nil || l.drawn == 0 {
		return
	}
	if l.drawn > 1 {
		fmt.Fprintf(l.err, "\x1b[%dA", l.drawn-1)
	}
	fmt.Fprint(l.err, "\r\x1b[J")
	l.drawn = 0
}

func (l *live) stop() {
	if l != nil {
		l.clear()
		l.still = true
	}
}

func (l *live) draw(p *progress) {
	if l == nil || l.still {
		return
	}
	l.clear()
	width, height := l.size()
	lines := formatLines(p, width, max(height-2, 2), time.Now())
	fmt.Fprint(l.err, strings.Join(lines, "\n"))
	l.drawn = len(lines)
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// formatLines returns the live lines: at most maxLines, each with less than width columns.
func formatLines(p *progress, width, maxLines int, now time.Time) (lines []string) {
	var phases []*activity
	for _, a := range p.open {
		if a.Node == "" && !a.wait {
			phases = append(phases, a)
		}
	}
	// room is the width for the text. It leaves 2 columns for the spinner and 8 for the duration, and 1 so that the line does not
	// wrap.
	room := max(width-11, 20)
	if n := len(phases); n > 0 {
		a := phases[n-1]
		var parts []string
		if a.Total > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d", a.Done, a.Total))
		}
		parts = append(parts, a.names...)
		if a.Phase == event.Check && a.Text != "" { // what the check waits for
			parts = append(parts, firstLine(a.Text))
		}
		for _, other := range phases[:n-1] { // the other phases that run now, for one of which the last phase may wait
			parts = append(parts, string(other.Phase))
		}
		left := padRight(truncate(fmt.Sprintf("%-9s %s", a.Phase, strings.Join(parts, " · ")), room), min(room, 66))
		frame := now.UnixMilli() / drawInterval.Milliseconds() % int64(len(spinner))
		lines = append(lines, fmt.Sprintf("%c %s %s", spinner[frame], left, formatDuration(now.Sub(a.Since))))
	}
	shown := p.perNode()
	names, waits := 0, false
	for _, a := range shown {
		names, waits = max(names, len(a.Node)), waits || a.wait
	}
	if len(phases) == 0 && !waits {
		return nil // between the last phase and the result
	}
	names = min(names, 24)
	for i, a := range shown {
		if len(lines) == maxLines-1 && i < len(shown)-1 {
			return append(lines, fmt.Sprintf("  … and %d more", len(shown)-i))
		}
		text := a.describe(now)
		if left := a.Until.Sub(now).Round(time.Second); left > 0 && a.Kind == event.Waiting {
			text = fmt.Sprintf("gives up in %s: %s", left, text)
		}
		line := padRight(truncate(fmt.Sprintf("%s %-9s %s", padRight(truncate(a.Node, names), names), a.Phase, text), room), min(room, 66))
		lines = append(lines, fmt.Sprintf("  %s %s", line, formatDuration(now.Sub(a.Since))))
	}
	return lines
}
