package event

import (
	"sync"
	"time"
)

// Grace is the time after which a wait is reported. Shorter waits are not reported, because a run with a thousand nodes
// has many thousands of short waits.
const Grace = 2 * time.Second

// Wait is a wait for something outside of nixbench: a node, a hypervisor, a program, a user.
// Its methods may be called from several goroutines, and on nil.
type Wait struct {
	sink Sink

	mu    sync.Mutex
	event Event
	timer *time.Timer
	sent  bool
	over  bool
}

// Wait begins a wait: e.Phase of e.Node waits for e.Text until e.Until at most, or without limit if Until is zero. An event of the kind
// Waiting is sent after [Grace], and again whenever [Wait.Change] is called. The caller ends the wait with [Wait.End].
func (s Sink) Wait(e Event) *Wait {
	if s == nil {
		return nil
	}
	e.Kind, e.Since = Waiting, time.Now()
	w := &Wait{sink: s, event: e}
	w.timer = time.AfterFunc(Grace, w.report)
	return w
}

// report sends the event Waiting. The timer calls it when [Grace] is over, unless the wait has ended or was restarted.
func (w *Wait) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.sent || time.Since(w.event.Since) < Grace { // Restart was called after the timer had fired
		return
	}
	w.sent = true
	w.sink.Send(w.event)
}

// Change sets the text and the time limit of the wait. The start time of the wait does not change.
func (w *Wait) Change(text string, until time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.event.Text == text && w.event.Until.Equal(until) {
		return
	}
	w.event.Text, w.event.Until = text, until
	if w.sent {
		w.sink.Send(w.event)
	}
}

// Restart ends the current wait, and begins a new wait that is reported after [Grace].
func (w *Wait) Restart(text string, until time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.endReport()
	w.event.Text, w.event.Until, w.event.Since = text, until, time.Now()
	w.timer.Reset(Grace)
}

// End ends the wait. It may be called several times.
func (w *Wait) End() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endReport()
	w.over = true
}

// endReport stops the timer, and sends WaitEnd if the wait was reported.
func (w *Wait) endReport() {
	w.timer.Stop()
	if !w.sent {
		return
	}
	w.sent = false
	e := w.event
	e.Kind, e.Until = WaitEnd, time.Time{}
	w.sink.Send(e)
}
