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

// Limits for an interrupted command. Most commands end at once. Others must restore keys or
// uncordon nodes, or wait for a program; after reportAfter nixbench prints what it waits for.
const (
	reportAfter = 500 * time.Millisecond
	viewGrace   = 200 * time.Millisecond // until the view must have shown the message
	giveUpAfter = time.Minute
)

// ongoingWork tracks by their events the phases and nodes that have begun and not ended.
type ongoingWork struct {
	mu    sync.Mutex
	nodes map[string]event.Phase
	order []string // names of nodes
	phase []event.Phase
}

// observe updates the tracked work with an event.
func (u *ongoingWork) observe(e event.Event) {
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

// String returns `web-1 (activate), web-2 (copy), and 3 more`, or the current phase if no node is
// being worked on.
func (u *ongoingWork) String() string {
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
		return "unfinished steps"
	}
	return strings.Join(parts, ", ")
}

// watchInterrupt reports what an interrupted command still waits for, and exits if that takes
// longer than giveUpAfter. The next run then finds the same state as after a killed run.
// watchInterrupt returns when ended is closed.
func (a *app) watchInterrupt(ended <-chan struct{}, exit func(code int)) {
	select {
	case <-a.ctx.Done():
	case <-ended:
		return
	}
	if closedWithin(ended, reportAfter) {
		return
	}
	reported := make(chan struct{})
	text := fmt.Sprintf("interrupted; waiting for %s; Ctrl-C again ends nixbench at once, and the next run continues", &a.ongoing)
	go func() {
		defer close(reported)
		a.openView()
		a.view.Event(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: text})
	}()
	select {
	case <-ended:
		return
	case <-reported:
	case <-time.After(viewGrace): // the output is a pipe that no process reads, or a terminal that is stopped
		if !a.recording.Load() { // no node and no record has to be restored
			exit(exitInterrupted)
			return
		}
		toStderr("note: " + text)
	}
	if !closedWithin(ended, giveUpAfter) {
		toStderr(fmt.Sprintf("error: interrupted; %s did not end within %v", &a.ongoing, giveUpAfter))
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
	closedWithin(written, viewGrace)
}

func closedWithin(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}
