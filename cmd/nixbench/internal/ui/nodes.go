package ui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// nodeLine is what is shown of a node that is being worked on.
type nodeLine struct {
	name    string // empty for waits of the run as a whole
	phase   event.Phase
	started time.Time
	done    int
	total   int
	text    string        // what it does, or waits for
	waits   []event.Event // which it is in, the last of them is shown
	only    bool          // it is shown for its waits alone
}

// nodeLines are the nodes at work, in the order in which they began.
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
		// From now on it waits for the others, and for the build.
		if i >= 0 && (e.Phase == event.Connect || e.Phase == event.Boot) {
			(*ns)[i].only = true
			ns.drop(i)
		}
	case event.Waiting:
		if i < 0 {
			*ns = append(*ns, &nodeLine{name: e.Node, only: true})
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
			ns.drop(i)
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

// drop removes the line if there is nothing more to show on it.
func (ns *nodeLines) drop(i int) {
	if n := (*ns)[i]; n.only && len(n.waits) == 0 {
		*ns = slices.Delete(*ns, i, i+1)
	}
}

// wait reports whether anything is waited for.
func (ns nodeLines) wait() bool {
	return slices.ContainsFunc(ns, func(n *nodeLine) bool { return len(n.waits) > 0 })
}

// reason is the wait to be shown. One without a phase is for a command, which says less than
// the phase that it is run for.
func (n *nodeLine) reason() (event.Event, bool) {
	for _, w := range slices.Backward(n.waits) {
		if w.Phase != "" || n.only {
			return w, true
		}
	}
	return event.Event{}, false
}

// now is what the line says: the phase, the text, and since when.
func (n *nodeLine) now(now time.Time) (event.Phase, string, time.Time) {
	if w, ok := n.reason(); ok {
		text := oneLine(w.Text)
		if left := w.Until.Sub(now).Round(time.Second); left > 0 {
			text = fmt.Sprintf("%s left: %s", left, text)
		}
		return w.Phase, text, w.Since
	}
	if n.total > 0 {
		return n.phase, fmt.Sprintf("%s of %s  %s", size(n.done), size(n.total), oneLine(n.text)), n.started
	}
	return n.phase, oneLine(n.text), n.started
}

// draw gives at most most lines of at most width columns.
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
		phase, text, since := n.now(now)
		left := fmt.Sprintf("  %s %-9s %s", pad(cut(n.name, names), names), phase, storeHash.ReplaceAllString(text, ""))
		room := max(width-8, 20)
		out = append(out, pad(cut(left, room), min(room, 72))+" "+seconds(now.Sub(since)))
	}
	return out
}

// resultLine is a node's last line: `web-1  switched to generation 7   3.2s`.
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
		clock = " " + seconds(e.Time.Sub(started))
	}
	name, text := e.Node, oneLine(text)
	if s.marks { // a log has room
		name = cut(name, 30)
	}
	// What is left beside the mark and the clock, which stands below those of phases.
	room := max(24, width-17-max(15, len([]rune(name))))
	if s.marks {
		text = cut(text, room)
	}
	return fmt.Sprintf("  %s%-15s %s%s", mark, name, pad(text, room), clock)
}

// storeHash is the part of a store path that nobody can read, and that leaves no
// room for the rest.
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

func size(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
