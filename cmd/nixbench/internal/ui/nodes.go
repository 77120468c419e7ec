package ui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// nodeLine is the live line of a node in progress.
type nodeLine struct {
	name      string // name of the node; empty for waits that belong to no node
	phase     event.Phase
	started   time.Time
	done      int           // transferred bytes
	total     int           // bytes to transfer; 0: the node transfers nothing
	samples   []sample      // progress of the transfer during the last rateWindow
	text      string        // current activity of the node
	waits     []event.Event // unfinished waits; the line shows the last one
	onlyWaits bool          // the line is shown only while the node waits for something
}

// sample is how many bytes had been transferred at a certain time.
type sample struct {
	at   time.Time
	done int
}

// rateWindow is the time over which the rate of a transfer is averaged. It is long enough for store paths of different kinds,
// and short enough to show that a transfer has become slow.
const rateWindow = 10 * time.Second

// addSample adds how many bytes are transferred at a time. It removes samples that are older than rateWindow, but keeps the newest
// of these.
func (n *nodeLine) addSample(at time.Time, done int) {
	n.samples = append(n.samples, sample{at, done})
	for len(n.samples) > 1 && !n.samples[1].at.After(at.Add(-rateWindow)) {
		n.samples = n.samples[1:]
	}
}

// nodeLines are the live lines of the nodes in progress, in the order in which the nodes began.
type nodeLines []*nodeLine

// applyEvent updates the lines of the nodes with an event: it adds, changes or removes a line.
func (ns *nodeLines) applyEvent(e event.Event) {
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
		// Remove the line. After these phases the node waits for other nodes or for the build, or it has ended (a node is
		// uncordoned after its result was shown).
		if i >= 0 && (e.Phase == event.Connect || e.Phase == event.Boot || e.Phase == event.Drain) {
			(*ns)[i].onlyWaits = true
			ns.removeIfIdle(i)
		} else if i >= 0 && e.Phase == event.Copy { // the next phase of the node may follow at once, so the line keeps its place
			(*ns)[i].onlyWaits, (*ns)[i].total, (*ns)[i].text = true, 0, ""
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
			ns.removeIfIdle(i)
		}
	case event.NodeResult:
		if i >= 0 {
			*ns = slices.Delete(*ns, i, i+1)
		}
	case event.NodeProgress:
		if i >= 0 {
			if e.Total > 0 {
				(*ns)[i].addSample(e.Time, e.Done)
			}
			(*ns)[i].done, (*ns)[i].total = e.Done, e.Total
			if e.Text != "" {
				(*ns)[i].text = e.Text
			}
		}
	case event.NodeLog:
		if i >= 0 && e.Phase != event.Copy { // a copy has its progress
			(*ns)[i].text = e.Text
		}
	}
}

func sameWait(a, b event.Event) bool { return a.Phase == b.Phase && a.Since.Equal(b.Since) }

// removeIfIdle removes line i if it is shown only while its node waits, and the last wait has ended.
func (ns *nodeLines) removeIfIdle(i int) {
	if n := (*ns)[i]; n.onlyWaits && len(n.waits) == 0 {
		*ns = slices.Delete(*ns, i, i+1)
	}
}

// hasWaits reports whether any node is waiting for something.
func (ns nodeLines) hasWaits() bool {
	return slices.ContainsFunc(ns, func(n *nodeLine) bool { return len(n.waits) > 0 })
}

// currentWait returns the wait that the line of the node shows, and false if the line shows none. A wait without a phase belongs
// to a single command on the node. It is shown only if the line shows no phase of the node.
func (n *nodeLine) currentWait() (event.Event, bool) {
	for _, w := range slices.Backward(n.waits) {
		if w.Phase != "" || n.onlyWaits {
			return w, true
		}
	}
	return event.Event{}, false
}

// currentActivity returns the phase and the text that the line of a node shows, and the time when this activity began.
func (n *nodeLine) currentActivity(now time.Time) (event.Phase, string, time.Time) {
	if w, ok := n.currentWait(); ok {
		text := firstLine(w.Text)
		if left := w.Until.Sub(now).Round(time.Second); left > 0 {
			text = fmt.Sprintf("%s left: %s", left, text)
		}
		return w.Phase, text, w.Since
	}
	if n.total > 0 {
		return n.phase, fmt.Sprintf("%s of %s%s  %s", FormatSize(int64(n.done)), FormatSize(int64(n.total)), n.formatRate(now), firstLine(n.text)), n.started
	}
	return n.phase, firstLine(n.text), n.started
}

// formatRate returns the rate of a transfer during the last rateWindow, and how long the rest takes at this rate. It returns ""
// during the first second of the transfer, because the rate is not reliable then, and for a transfer that has stopped.
func (n *nodeLine) formatRate(now time.Time) string {
	if len(n.samples) == 0 || n.done >= n.total {
		return ""
	}
	first := n.samples[0] // the last sample before the last rateWindow, or the first one of the transfer
	for _, s := range n.samples[1:] {
		if s.at.After(now.Add(-rateWindow)) {
			break
		}
		first = s
	}
	took, done := now.Sub(first.at), n.done-first.done
	if took < time.Second || done <= 0 {
		return ""
	}
	rate := float64(done) / took.Seconds()
	left := time.Duration(float64(n.total-n.done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf(", %s/s, %s left", FormatSize(int64(rate)), left)
}

// draw returns the lines of the nodes: at most maxLines, each with at most width columns.
func (ns nodeLines) draw(maxLines, width int, now time.Time) []string {
	var out []string
	names := 0
	ns = slices.DeleteFunc(slices.Clone(ns), func(n *nodeLine) bool { return n.onlyWaits && len(n.waits) == 0 })
	for _, n := range ns {
		names = max(names, len(n.name))
	}
	names = min(names, 24)
	for i, n := range ns {
		if i == maxLines-1 && len(ns) > maxLines {
			return append(out, fmt.Sprintf("  … and %d more", len(ns)-i))
		}
		phase, text, since := n.currentActivity(now)
		left := fmt.Sprintf("  %s %-9s %s", padRight(truncate(n.name, names), names), phase, storeHash.ReplaceAllString(text, ""))
		room := max(width-8, 20)
		out = append(out, padRight(truncate(left, room), min(room, 72))+" "+formatDuration(now.Sub(since)))
	}
	return out
}

// formatResult formats a node's result and duration: `web-1 switched to generation 7 3.2s`.
func formatResult(s style, e event.Event, started time.Time, width int) string {
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
	name, text := e.Node, firstLine(text)
	if s.marks { // do not shorten names in a log
		name = truncate(name, 30)
	}
	// room is the width for the text of the result. The duration follows, aligned with the durations of phases.
	room := max(24, width-17-max(15, len([]rune(name))))
	if s.marks {
		text = truncate(text, room)
	}
	return fmt.Sprintf("  %s%-15s %s%s", mark, name, padRight(text, room), clock)
}

// storeHash matches the beginning of a store path: the store folder and the hash. It is removed to shorten lines.
var storeHash = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-`)

// firstLine returns the first line of s, with control characters replaced by spaces.
func firstLine(s string) string {
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
