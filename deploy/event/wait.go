package event

import (
	"sync"
	"time"
)

// Grace is how long a wait may take without being reported. Most waits are over sooner, and a
// run of a thousand nodes has many thousands of them.
const Grace = 2 * time.Second

// Wait is a wait for something outside of the program: a node, a hypervisor, a program, a person.
// Its methods may be called from several goroutines, and on nil.
type Wait struct {
	sink Sink

	mu    sync.Mutex
	event Event
	timer *time.Timer
	sent  bool
	over  bool
}

// Wait reports that e.Text is waited for from now on, for e.Phase of e.Node, until e.Until at most;
// without Until there is no limit. The event is sent after [Grace], and again whenever the wait
// changes. The caller ends the wait with [Wait.End].
func (s Sink) Wait(e Event) *Wait {
	if s == nil {
		return nil
	}
	e.Kind, e.Since = Waiting, time.Now()
	w := &Wait{sink: s, event: e}
	w.timer = time.AfterFunc(Grace, w.report)
	return w
}

// report sends the event, once the grace is over.
func (w *Wait) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.sent || time.Since(w.event.Since) < Grace { // Restart came first
		return
	}
	w.sent = true
	w.sink.Send(w.event)
}

// Change says that something else is waited for by now, or until another time.
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

// Restart says that what was waited for has come, and what is waited for from now on.
func (w *Wait) Restart(text string, until time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.cancelReport()
	w.event.Text, w.event.Until, w.event.Since = text, until, time.Now()
	w.timer.Reset(Grace)
}

// End says that the wait is over. It may be called again.
func (w *Wait) End() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelReport()
	w.over = true
}

// cancelReport takes the report back, if there was one.
func (w *Wait) cancelReport() {
	w.timer.Stop()
	if !w.sent {
		return
	}
	w.sent = false
	e := w.event
	e.Kind, e.Until = WaitEnd, time.Time{}
	w.sink.Send(e)
}
