package ui

import (
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// reminders say when something that goes on is named, counted from its start or from its last
// change; afterwards it is named every minute.
var reminders = []time.Duration{4 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// together is how far apart things may become due that are named at the same time.
const together = time.Second

// watch follows what goes on: phases of the run, phases of nodes, and waits. It tells which of
// them have gone on so long without output that they are to be named.
type watch struct {
	verbose bool // logs are shown, and are output
	open    []*activity
}

// activity is something that has begun and is not over.
type activity struct {
	event event.Event // the node, the phase, the text, the limit
	since time.Time
	quiet time.Time // since when nothing was shown of it
	told  int       // how often it was named since then
	wait  bool
}

// due is when the activity is to be named next.
func (a *activity) due() time.Time {
	if extra := a.told - len(reminders) + 1; extra > 0 {
		return a.quiet.Add(reminders[len(reminders)-1] + time.Duration(extra)*time.Minute)
	}
	return a.quiet.Add(reminders[a.told])
}

func (w *watch) event(e event.Event) {
	switch e.Kind {
	case event.PhaseStart, event.NodeStart:
		w.end(e.Node, e.Phase)
		w.begin(e, e.Time)
	case event.PhaseEnd, event.NodeEnd:
		w.end(e.Node, e.Phase)
	case event.NodeResult:
		w.open = slices.DeleteFunc(w.open, func(a *activity) bool { return a.event.Node == e.Node })
	case event.Progress, event.NodeProgress:
		if a := w.find(e.Node, e.Phase); a != nil {
			a.event.Done, a.event.Total = e.Done, e.Total
			if e.Text != "" && e.Text != a.event.Text {
				a.event.Text = e.Text
				if e.Phase != event.Copy && e.Phase != event.Build { // whose texts only count
					a.renew(e.Time)
				}
			}
		}
	case event.BuildStart, event.CopyStart:
		if a := w.find("", e.Phase); a != nil {
			a.event.Text = drvName(e.Path)
		}
	case event.NodeLog, event.BuildLog:
		if a := w.find(e.Node, e.Phase); a != nil && w.verbose {
			a.quiet, a.told = e.Time, 0
		}
	case event.Waiting:
		w.wait(e)
	case event.WaitEnd:
		w.open = slices.DeleteFunc(w.open, func(a *activity) bool { return a.is(e) })
	}
}

// is reports whether an event is about this wait.
func (a *activity) is(e event.Event) bool {
	return a.wait && a.event.Node == e.Node && a.event.Phase == e.Phase && a.since.Equal(e.Since)
}

func (w *watch) begin(e event.Event, since time.Time) *activity {
	a := &activity{event: e, since: since, quiet: since}
	w.open = append(w.open, a)
	return a
}

func (w *watch) wait(e event.Event) {
	i := slices.IndexFunc(w.open, func(a *activity) bool { return a.is(e) })
	if i < 0 {
		w.begin(e, e.Since).wait = true
		return
	}
	w.open[i].event = e
	w.open[i].renew(e.Time)
}

// renew has a new reason named as soon as a new wait would be.
func (a *activity) renew(now time.Time) {
	if a.due().After(now.Add(reminders[0])) {
		a.quiet, a.told = now, 0
	}
}

func (w *watch) end(node string, phase event.Phase) {
	w.open = slices.DeleteFunc(w.open, func(a *activity) bool {
		return !a.wait && a.event.Node == node && a.event.Phase == phase
	})
}

func (w *watch) find(node string, phase event.Phase) *activity {
	for _, a := range slices.Backward(w.open) {
		if !a.wait && a.event.Node == node && a.event.Phase == phase {
			return a
		}
	}
	return nil
}

// covered reports whether something else that goes on says more: a wait says more than the phase
// that it belongs to, and what a node does more than a phase of the run that is only its frame. A
// wait without a phase is for a command, which says less than what it is run for.
func (w *watch) covered(a *activity) bool {
	if a.wait {
		return a.event.Phase == "" && slices.ContainsFunc(w.open, func(b *activity) bool { return !b.wait && b.event.Node == a.event.Node && b.event.Node != "" })
	}
	frame := a.event.Node == "" && slices.Contains([]event.Phase{event.Deploy, event.Provision, event.Connect, event.Remove}, a.event.Phase)
	return slices.ContainsFunc(w.open, func(b *activity) bool {
		switch {
		case b == a:
			return false
		case frame:
			return b.event.Node != "" || b.wait
		}
		return b.wait && b.event.Phase != "" && b.event.Node == a.event.Node && (a.event.Node != "" || b.event.Phase == a.event.Phase)
	})
}

// late gives what is to be named now, as events of the kind `wait`: waits first, then the oldest.
// Its caller names all of it.
func (w *watch) late(now time.Time) []event.Event {
	var named []*activity
	any := false
	for _, a := range w.open {
		if w.covered(a) { // it counts from when it is all that goes on
			a.quiet, a.told = now, 0
			continue
		}
		if !a.due().After(now.Add(together)) {
			named = append(named, a)
			any = any || !a.due().After(now)
		}
	}
	if !any {
		return nil
	}
	slices.SortStableFunc(named, func(a, b *activity) int {
		if a.wait != b.wait {
			return map[bool]int{true: -1, false: 1}[a.wait]
		}
		return a.since.Compare(b.since)
	})
	var out []event.Event
	for _, a := range named {
		for !a.due().After(now.Add(together)) {
			a.told++
		}
		e := a.event
		e.Kind, e.Time, e.Since = event.Waiting, now, a.since
		out = append(out, e)
	}
	return out
}
