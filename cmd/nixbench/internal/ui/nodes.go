package ui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// nodeLine is the live line of a node that is being worked on.
type nodeLine struct {
	name      string // empty for waits that belong to no node
	phase     event.Phase
	started   time.Time
	done      int
	total     int
	text      string        // the current activity
	waits     []event.Event // the node's current waits; the last is shown
	onlyWaits bool          // show the line only as long as it has waits
}

// nodeLines are the lines of the nodes that are being worked on, in the order in which they began.
type nodeLines []*nodeLine

func (ns *nodeLines) event(e event.Event) {
	i := slices.IndexFunc(*ns, func(n *nodeLine) bool { return n.name == e.Node })
	switch e.Kind {
	case event.NodeStart:
		n := &nodeLine{name: e.Node, phase: e.Phase, started: e.Time, text: e.Text}
		if i < 0 {
			*ns = append(*ns, n)
		} else {
			n.waits = (*ns)[i].waits
			(*ns)[i] = n
		}
	case event.NodeEnd:
		// From now on the node waits for the other nodes and for the build.
		if i >= 0 && (e.Phase == event.Connect || e.Phase == event.Boot) {
			(*ns)[i].onlyWaits = true
			ns.dropIdle(i)
		}
	case event.Waiting:
		if i < 0 {
			*ns = append(*ns, &nodeLine{name: e.Node, onlyWaits: true})
			i = len(*ns) - 1
		}
		n := (*ns)[i]
		if at := slices.IndexFunc(n.waits, func(w event.Event) bool { return sameWait(w, e) }); at >= 0 {
			n.waits[at] = e
		} else {
			n.waits = append(n.waits, e)
		}
	case event.WaitEnd:
		if i >= 0 {
			n := (*ns)[i]
			n.waits = slices.DeleteFunc(n.waits, func(w event.Event) bool { return sameWait(w, e) })
			ns.dropIdle(i)
		}
	case event.NodeResult:
		if i >= 0 {
			*ns = slices.Delete(*ns, i, i+1)
		}
	case event.NodeProgress:
		if i >= 0 {
			(*ns)[i].done, (*ns)[i].total = e.Done, e.Total
			if e.Text != "" {
				(*ns)[i].text = e.Text
			}
		}
	case event.NodeLog:
		if i >= 0 {
			(*ns)[i].text = e.Text
		}
	}
}

func sameWait(a, b event.Event) bool { return a.Phase == b.Phase && a.Since.Equal(b.Since) }

// dropIdle removes the line if there is nothing left to show on it.
func (ns *nodeLines) dropIdle(i int) {
	if n := (*ns)[i]; n.onlyWaits && len(n.waits) == 0 {
		*ns = slices.Delete(*ns, i, i+1)
	}
}

// waiting reports whether any line has a wait.
func (ns nodeLines) waiting() bool {
	return slices.ContainsFunc(ns, func(n *nodeLine) bool { return len(n.waits) > 0 })
}

// currentWait returns the wait to show, and whether there is one. A wait without a phase belongs to
// a single command, and the phase in which the command runs is more informative.
func (n *nodeLine) currentWait() (event.Event, bool) {
	for _, w := range slices.Backward(n.waits) {
		if w.Phase != "" || n.onlyWaits {
			return w, true
		}
	}
	return event.Event{}, false
}

// current returns the phase and text of the line, and when they began.
func (n *nodeLine) current(now time.Time) (event.Phase, string, time.Time) {
	if w, ok := n.currentWait(); ok {
		text := oneLine(w.Text)
		if left := w.Until.Sub(now).Round(time.Second); left > 0 {
			text = fmt.Sprintf("%s left: %s", left, text)
		}
		return w.Phase, text, w.Since
	}
	if n.total > 0 {
		return n.phase, fmt.Sprintf("%s of %s  %s", FormatSize(int64(n.done)), FormatSize(int64(n.total)), oneLine(n.text)), n.started
	}
	return n.phase, oneLine(n.text), n.started
}

// draw returns at most most lines of at most width columns.
func (ns nodeLines) draw(most, width int, now time.Time) []string {
	var out []string
	names := 0
	for _, n := range ns {
		names = max(names, len(n.name))
	}
	names = min(names, 24)
	for i, n := range ns {
		if i == most-1 && len(ns) > most {
			return append(out, fmt.Sprintf("  … and %d more", len(ns)-i))
		}
		phase, text, since := n.current(now)
		left := fmt.Sprintf("  %s %-9s %s", pad(cut(n.name, names), names), phase, storeHash.ReplaceAllString(text, ""))
		room := max(width-8, 20)
		out = append(out, pad(cut(left, room), min(room, 72))+" "+formatDuration(now.Sub(since)))
	}
	return out
}

// resultLine returns the last line of a node: `web-1 switched to generation 7 3.2s`.
func resultLine(s style, e event.Event, started time.Time, width int) string {
	mark, text := "", e.Text
	switch {
	case s.marks && e.Failed:
		mark, text = s.bad("✗")+" ", strings.TrimPrefix(text, "failed: ")
	case s.marks:
		mark = s.good("✓") + " "
	}
	clock := ""
	if !started.IsZero() {
		clock = " " + formatDuration(e.Time.Sub(started))
	}
	name, text := e.Node, oneLine(text)
	if s.marks { // do not shorten names in a log
		name = cut(name, 30)
	}
	// The width that remains beside the mark and the time, which is aligned with the times of
	// phases.
	room := max(24, width-17-max(15, len([]rune(name))))
	if s.marks {
		text = cut(text, room)
	}
	return fmt.Sprintf("  %s%-15s %s%s", mark, name, pad(text, room), clock)
}

// storeHash matches the unreadable part of a store path, which is omitted to save space.
var storeHash = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-`)

func oneLine(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, first)
}

// FormatSize formats a number of bytes: `512 B` or `1.5 GiB`.
func FormatSize(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
