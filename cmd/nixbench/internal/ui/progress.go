package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// progress tracks what has begun in a run and not ended. The view shows these activities as live lines, or reports those that have
// had no output for long.
type progress struct {
	verbose bool // the view shows logs of builds and nodes, so a log line counts as output
	open    []*activity
	began   map[string]time.Time // when each node began
}

// activity is a phase of the run, a phase of a node, or a wait, that has begun and not ended.
type activity struct {
	event.Event           // the event that began the activity, with its newest text and progress; Since is its start
	wait        bool      // the activity is a wait, not a phase
	names       []string  // of running builds and copies
	lastOutput  time.Time // time of the last output about this activity, initially its start
	nextReport  time.Time // when the activity is reported, unless it has output before
}

// apply updates the activities with an event. If the event ends a phase or a node, it returns when that began.
func (p *progress) apply(e event.Event) (began time.Time) {
	switch e.Kind {
	case event.PhaseStart, event.NodeStart:
		p.endPhase(e.Node, e.Phase)
		p.begin(e)
	case event.PhaseEnd, event.NodeEnd:
		return p.endPhase(e.Node, e.Phase)
	case event.NodeResult:
		p.open = slices.DeleteFunc(p.open, func(a *activity) bool { return a.Node == e.Node })
		p.addDone(e.Phase, 1)
		began = p.began[e.Node]
		delete(p.began, e.Node)
	case event.UnitEnd:
		p.addDone(e.Phase, len(e.Units))
	case event.Progress, event.NodeProgress:
		if a := p.findPhase(e.Node, e.Phase); a != nil {
			a.Done, a.Total = e.Done, e.Total
			if e.Text != "" && e.Text != a.Text {
				a.Text = e.Text
				if e.Phase != event.Copy && e.Phase != event.Build { // the texts of copies and builds change all the time, and do not reset the reports
					a.advanceReport(e.Time)
				}
			}
		}
	case event.BuildStart, event.CopyStart, event.BuildEnd, event.CopyEnd:
		if a := p.findPhase("", e.Phase); a != nil {
			name := trimStorePath(e.Path)
			if e.Kind == event.BuildStart || e.Kind == event.CopyStart {
				a.Text, a.names = name, append(a.names, name)
			} else if i := slices.Index(a.names, name); i >= 0 {
				a.names = slices.Delete(a.names, i, i+1)
			}
		}
	case event.NodeLog, event.BuildLog:
		if a := p.findPhase(e.Node, e.Phase); a != nil {
			if e.Kind == event.NodeLog && e.Phase != event.Copy { // a copy has its progress
				a.Text = e.Text
			}
			if p.verbose {
				a.recordOutput(e.Time)
			}
		}
	case event.Waiting:
		if i := slices.IndexFunc(p.open, func(a *activity) bool { return a.isWait(e) }); i >= 0 {
			p.open[i].Event = e
			p.open[i].advanceReport(e.Time)
		} else {
			p.begin(e)
		}
	case event.WaitEnd:
		p.open = slices.DeleteFunc(p.open, func(a *activity) bool { return a.isWait(e) })
	}
	return began
}

func (p *progress) addDone(phase event.Phase, n int) {
	if a := p.findPhase("", phase); a != nil {
		a.Done += n
	}
}

func (p *progress) begin(e event.Event) {
	a := &activity{Event: e, wait: e.Kind == event.Waiting}
	at := len(p.open)
	switch e.Kind {
	case event.PhaseStart:
		a.Since = e.Time
		if e.Phase == event.Build {
			a.Total = 0 // e.Total is a number of units, but the progress of a build is a number of derivations
			if i := slices.Index(p.open, p.findPhase("", event.Evaluate)); i >= 0 {
				at = i // a build that begins during the evaluation waits for it
			}
		}
	case event.NodeStart:
		a.Since = e.Time
		if p.began == nil {
			p.began = map[string]time.Time{}
		}
		if p.began[e.Node].IsZero() {
			p.began[e.Node] = e.Time
		}
	}
	a.recordOutput(a.Since)
	p.open = slices.Insert(p.open, at, a)
}

func (a *activity) isWait(e event.Event) bool {
	return a.wait && a.Node == e.Node && a.Phase == e.Phase && a.Since.Equal(e.Since)
}

// endPhase removes a phase of the run or of a node, and returns when it began.
func (p *progress) endPhase(node string, phase event.Phase) (began time.Time) {
	a := p.findPhase(node, phase)
	if a == nil {
		return began
	}
	p.open = slices.DeleteFunc(p.open, func(b *activity) bool { return a == b })
	return a.Since
}

func (p *progress) findPhase(node string, phase event.Phase) *activity {
	for _, a := range slices.Backward(p.open) {
		if !a.wait && a.Node == node && a.Phase == phase {
			return a
		}
	}
	return nil
}

// perNode returns the activity to show for waits that belong to no node, and for each node, in natural order.
// A wait is shown rather than a phase. A wait without a phase belongs to a single command on the node, and is shown only if the node
// has no phase.
func (p *progress) perNode() []*activity {
	rank := func(a *activity) int {
		switch {
		case a.wait && a.Phase != "":
			return 2
		case !a.wait:
			return 1
		}
		return 0
	}
	shown := map[string]*activity{}
	for _, a := range p.open {
		if before := shown[a.Node]; (a.wait || a.Node != "") && (before == nil || rank(a) >= rank(before)) {
			shown[a.Node] = a
		}
	}
	var out []*activity
	for _, name := range nixeval.SortedNames(shown) {
		out = append(out, shown[name])
	}
	return out
}

// describe returns what the activity does: its progress and its text.
func (a *activity) describe(now time.Time) string {
	var parts []string
	switch {
	case a.Total == 0:
	case a.Phase == event.Copy:
		parts = []string{event.Size(int64(a.Done)) + " of " + event.Size(int64(a.Total))}
		if took := now.Sub(a.Since); took >= time.Second && a.Done > 0 && a.Done < a.Total {
			rate := float64(a.Done) / took.Seconds()
			left := time.Duration(float64(a.Total-a.Done) / rate * float64(time.Second)).Round(time.Second)
			parts = append(parts, event.Size(int64(rate))+"/s", left.String()+" left")
		}
	case a.Done > 0:
		parts = []string{fmt.Sprintf("%d of %d", a.Done, a.Total)}
	}
	if text := storeHash.ReplaceAllString(firstLine(a.Text), ""); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// firstReport is the time without output after which an activity is reported. Each further interval is twice as long, up to a minute.
const firstReport = 4 * time.Second

func (a *activity) recordOutput(now time.Time) {
	a.lastOutput, a.nextReport = now, now.Add(firstReport)
}

// advanceReport is called when the text of the activity has changed. It makes the next report due as early as for a new activity.
func (a *activity) advanceReport(now time.Time) {
	if a.nextReport.After(now.Add(firstReport)) {
		a.recordOutput(now)
	}
}

// isCovered reports whether activity a is not reported because another activity says more, such as one that perNode shows. A phase of a
// node covers a phase of the run that consists only of work on nodes. During the evaluation, the phase build is covered, because it waits
// for more evaluated units.
func (p *progress) isCovered(a *activity, shown []*activity) bool {
	switch {
	case a.Node != "":
		return !slices.Contains(shown, a)
	case a.wait:
		return false
	case a.Phase == event.Build && p.findPhase("", event.Evaluate) != nil:
		return true
	}
	frame := slices.Contains([]event.Phase{event.Deploy, event.Provision, event.Connect, event.Remove}, a.Phase)
	return slices.ContainsFunc(p.open, func(b *activity) bool {
		return frame && (b.Node != "" || b.wait) || b.wait && b.Node == "" && b.Phase == a.Phase
	})
}

// takeDue returns the activities that must be reported now, and sets the time of their next report. Waits come before phases, each in
// the order in which they began.
func (p *progress) takeDue(now time.Time) []*activity {
	var waits, phases []*activity
	shown := p.perNode()
	for _, a := range p.open {
		switch {
		case p.isCovered(a, shown): // report the activity later, if it then still has no output
			a.recordOutput(now)
		case a.nextReport.After(now):
		case a.wait:
			waits = append(waits, a)
		default:
			phases = append(phases, a)
		}
	}
	due := append(waits, phases...)
	for _, a := range due {
		a.nextReport = now.Add(min(now.Sub(a.lastOutput), time.Minute))
	}
	return due
}

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
