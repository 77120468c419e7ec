package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// How long an interrupted command may take. Most are over at once. Others have to give back keys or
// work that a node lent, or wait for a program: that is said after the first of these times.
const (
	sayAfter  = 500 * time.Millisecond
	viewGrace = 200 * time.Millisecond // for the view to take the message
	giveUp    = time.Minute
)

// underway is what has begun and not ended, as events tell it.
type underway struct {
	mu    sync.Mutex
	nodes map[string]event.Phase
	order []string // names of nodes
	phase []event.Phase
}

// see takes an event.
func (u *underway) see(e event.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch e.Kind {
	case event.PhaseStart:
		u.phase = append(u.phase, e.Phase)
	case event.PhaseEnd:
		if i := slices.Index(u.phase, e.Phase); i >= 0 {
			u.phase = slices.Delete(u.phase, i, i+1)
		}
	case event.NodeStart:
		if u.nodes == nil {
			u.nodes = map[string]event.Phase{}
		}
		if _, ok := u.nodes[e.Node]; !ok {
			u.order = append(u.order, e.Node)
		}
		u.nodes[e.Node] = e.Phase
	case event.NodeEnd, event.NodeResult:
		delete(u.nodes, e.Node)
		u.order = slices.DeleteFunc(u.order, func(n string) bool { return n == e.Node })
	}
}

// String is `activate of web-1, web-2 and 3 more`, or the phases where no node is at work.
func (u *underway) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var parts []string
	for _, n := range u.order {
		if len(parts) == 5 {
			parts = append(parts, fmt.Sprintf("and %d more", len(u.order)-5))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", n, u.nodes[n]))
	}
	if len(parts) == 0 && len(u.phase) > 0 {
		parts = []string{"the phase " + string(u.phase[len(u.phase)-1])}
	}
	if len(parts) == 0 {
		return "what is under way"
	}
	return strings.Join(parts, ", ")
}

// watchInterrupt says what an interrupted command still waits for, and ends it where that takes too
// long. What it leaves then is what a killed run leaves: the next one finds it. It returns when over is closed.
func (a *app) watchInterrupt(over <-chan struct{}, exit func(code int)) {
	select {
	case <-a.ctx.Done():
	case <-over:
		return
	}
	if within(over, sayAfter) {
		return
	}
	said := make(chan struct{})
	text := fmt.Sprintf("interrupted; waiting for %s; Ctrl-C again ends nixbench at once, and the next run goes on from there", &a.underway)
	go func() {
		defer close(said)
		a.open()
		a.view.Event(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: text})
	}()
	select {
	case <-over:
		return
	case <-said:
	case <-time.After(viewGrace): // the output is a pipe that is not read, or a terminal that is stopped
		if !a.recording.Load() { // nothing has to be given back, and nothing can go on
			exit(exitInterrupted)
			return
		}
		toStderr("note: " + text)
	}
	if !within(over, giveUp) {
		toStderr(fmt.Sprintf("error: interrupted; %s did not end within %v", &a.underway, giveUp))
		exit(exitInterrupted)
	}
}

// toStderr writes a line without the view. Stderr may be the terminal that is stopped: then the line is lost.
func toStderr(line string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		fmt.Fprintln(os.Stderr, line)
	}()
	within(written, viewGrace)
}

func within(over <-chan struct{}, d time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(d):
		return false
	}
}
