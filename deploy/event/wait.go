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
	sent  bool // the wait was reported
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

func (w *Wait) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.sent = true
		w.sink.Send(w.event)
	}
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

// End ends the wait. It may be called several times.
func (w *Wait) End() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	if w.sent && !w.over {
		e := w.event
		e.Kind, e.Until = WaitEnd, time.Time{}
		w.sink.Send(e)
	}
	w.over = true
}
