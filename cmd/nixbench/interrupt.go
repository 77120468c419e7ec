package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
)

// Time limits after an interrupt. A command may have to restore keys, uncordon nodes, or wait for a
// program before it ends.
const (
	reportAfter = 500 * time.Millisecond // after this time, nixbench prints for which work it waits
	viewGrace   = 200 * time.Millisecond // time limit for the view to show the message about the interrupt
	giveUpAfter = time.Minute            // then nixbench exits although work is unfinished
)

// ongoingWork tracks which phases and nodes have begun and not ended. observe updates it with each event.
type ongoingWork struct {
	mu    sync.Mutex
	nodes map[string]event.Phase // node → its current phase
	order []string               // names of the nodes in the order in which they began
	phase []event.Phase          // phases of the run that have begun and not ended, in the order in which they began
}

// observe updates the phases and nodes with an event.
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

// String returns the nodes in progress, such as `web-1 (activate), web-2 (copy), and 3 more`. If no node is in progress, it
// returns the current phase.
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

// watchInterrupt waits until the command is interrupted. Then it reports the unfinished work. If the command does not end within
// giveUpAfter, it calls exit; the next run then finds the same state as after a killed run. When the channel ended is closed, the
// command has ended, and watchInterrupt returns. While another program uses the terminal, it reports nothing.
func (a *app) watchInterrupt(ended <-chan struct{}, exit func(code int)) {
	select {
	case <-a.ctx.Done():
	case <-ended:
		return
	}
	if waitClosed(ended, reportAfter) {
		return
	}
	if a.paused.Load() {
		giveUp(&a.ongoing, ended, exit)
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
	case <-time.After(viewGrace): // the view cannot show the message: no process reads the pipe, or the terminal is stopped
		if !a.recording.Load() { // exit at once: no run is recorded, so no node must be uncordoned and no record must be ended
			exit(exitInterrupted)
			return
		}
		writeStderr("note: " + text)
	}
	giveUp(&a.ongoing, ended, exit)
}

// giveUp calls exit if the channel ended is not closed (the command has not ended) within giveUpAfter.
func giveUp(ongoing *ongoingWork, ended <-chan struct{}, exit func(code int)) {
	if !waitClosed(ended, giveUpAfter) {
		writeStderr(fmt.Sprintf("error: interrupted; %s did not end within %v", ongoing, giveUpAfter))
		exit(exitInterrupted)
	}
}

// writeStderr writes a line to stderr without the view. If stderr is a stopped terminal,
// writeStderr returns after viewGrace, and the line is lost.
func writeStderr(line string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		fmt.Fprintln(ui.Printable(os.Stderr), line)
	}()
	waitClosed(written, viewGrace)
}

// waitClosed waits until ended is closed, for at most d, and reports whether it is closed.
func waitClosed(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}
