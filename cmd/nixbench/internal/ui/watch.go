package ui

import (
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// reminders are the durations after which an activity without output is reported, counted from its
// start or its last output. After the last duration, the activity is reported every minute.
var reminders = []time.Duration{4 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// batchWindow is how much too early an activity may be reported, so that nixbench reports it together with another activity.
const batchWindow = time.Second

// watch tracks the phases of the run, the phases of nodes, and the waits. It decides which of these activities the view must
// report, because they have had no output for long.
type watch struct {
	verbose bool        // the view shows logs of builds, so a log line counts as output
	open    []*activity // activities that have not ended
}

// activity is a phase or a wait of the run that has begun and not ended.
type activity struct {
	event      event.Event // the event that began the activity: its node, phase, text and time limit
	since      time.Time
	lastOutput time.Time // time of the last output about this activity, initially its start
	reports    int       // number of reports since lastOutput
	wait       bool      // the activity is a wait, not a phase
}

// due returns the time at which the activity must be reported next.
func (a *activity) due() time.Time {
	if extra := a.reports - len(reminders) + 1; extra > 0 {
		return a.lastOutput.Add(reminders[len(reminders)-1] + time.Duration(extra)*time.Minute)
	}
	return a.lastOutput.Add(reminders[a.reports])
}

// applyEvent updates the activities with an event: one begins, ends or has output.
func (w *watch) applyEvent(e event.Event) {
	switch e.Kind {
	case event.PhaseStart, event.NodeStart:
		w.endPhase(e.Node, e.Phase)
		w.beginActivity(e, e.Time)
	case event.PhaseEnd, event.NodeEnd:
		w.endPhase(e.Node, e.Phase)
	case event.NodeResult:
		w.open = slices.DeleteFunc(w.open, func(a *activity) bool { return a.event.Node == e.Node })
	case event.Progress, event.NodeProgress:
		if a := w.findPhase(e.Node, e.Phase); a != nil {
			a.event.Done, a.event.Total = e.Done, e.Total
			if e.Text != "" && e.Text != a.event.Text {
				a.event.Text = e.Text
				if e.Phase != event.Copy && e.Phase != event.Build { // the texts of copies and builds change all the time, and do not reset the reports
					a.resetReports(e.Time)
				}
			}
		}
	case event.BuildStart, event.CopyStart:
		if a := w.findPhase("", e.Phase); a != nil {
			a.event.Text = trimStorePath(e.Path)
		}
	case event.NodeLog, event.BuildLog:
		if a := w.findPhase(e.Node, e.Phase); a != nil && w.verbose {
			a.lastOutput, a.reports = e.Time, 0
		}
	case event.Waiting:
		w.updateWait(e)
	case event.WaitEnd:
		w.open = slices.DeleteFunc(w.open, func(a *activity) bool { return a.matches(e) })
	}
}

// matches reports whether an event is about this activity, which must be a wait.
func (a *activity) matches(e event.Event) bool {
	return a.wait && a.event.Node == e.Node && a.event.Phase == e.Phase && a.since.Equal(e.Since)
}

func (w *watch) beginActivity(e event.Event, since time.Time) *activity {
	a := &activity{event: e, since: since, lastOutput: since}
	w.open = append(w.open, a)
	return a
}

func (w *watch) updateWait(e event.Event) {
	i := slices.IndexFunc(w.open, func(a *activity) bool { return a.matches(e) })
	if i < 0 {
		w.beginActivity(e, e.Since).wait = true
		return
	}
	w.open[i].event = e
	w.open[i].resetReports(e.Time)
}

// resetReports is called when the text of the activity has changed. It makes the next report due as early as for a new activity.
func (a *activity) resetReports(now time.Time) {
	if a.due().After(now.Add(reminders[0])) {
		a.lastOutput, a.reports = now, 0
	}
}

func (w *watch) endPhase(node string, phase event.Phase) {
	w.open = slices.DeleteFunc(w.open, func(a *activity) bool {
		return !a.wait && a.event.Node == node && a.event.Phase == phase
	})
}

func (w *watch) findPhase(node string, phase event.Phase) *activity {
	for _, a := range slices.Backward(w.open) {
		if !a.wait && a.event.Node == node && a.event.Phase == phase {
			return a
		}
	}
	return nil
}

// isCovered reports whether activity a is not reported because another activity says more. A wait covers its phase. A phase of a
// node covers a phase of the run that consists only of work on nodes. A wait without a phase belongs to a single command: the
// phase of the node covers it. During the evaluation, the phase build is covered, because it waits for more evaluated units.
func (w *watch) isCovered(a *activity) bool {
	if a.wait {
		return a.event.Phase == "" && slices.ContainsFunc(w.open, func(b *activity) bool { return !b.wait && b.event.Node == a.event.Node && b.event.Node != "" })
	}
	if a.event.Node == "" && a.event.Phase == event.Build && w.findPhase("", event.Evaluate) != nil {
		return true
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

// takeDue returns an event [event.Waiting] for each activity that must be reported now, and counts this as a report. Waits come
// before phases, each in the order in which they began.
func (w *watch) takeDue(now time.Time) []event.Event {
	var named []*activity
	any := false
	for _, a := range w.open {
		if w.isCovered(a) { // an activity that another one covers is not due; later it is reported only if it still has no output
			a.lastOutput, a.reports = now, 0
			continue
		}
		if !a.due().After(now.Add(batchWindow)) {
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
		for !a.due().After(now.Add(batchWindow)) {
			a.reports++
		}
		e := a.event
		e.Kind, e.Time, e.Since = event.Waiting, now, a.since
		out = append(out, e)
	}
	return out
}
