package ui

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
)

// livePhase is a phase that has begun and not ended. Several phases may run at the same time, because machines boot while systems
// are evaluated and built.
type livePhase struct {
	phase   event.Phase
	started time.Time
	done    int      // finished units, builds or nodes
	total   int      // 0: unknown
	active  []string // names of running builds and copies
}

// tty shows live lines at the bottom of the terminal: one for the phase for which the run waits, and one for each node in
// progress. It prints finished phases and results above the live lines.
type tty struct {
	out, err io.Writer
	size     func() (width, height int)
	verbose  bool
	style    style

	phases []*livePhase // running phases; the progress of the last one is shown
	nodes  nodeLines
	began  map[string]time.Time // time of each node's first event
	still  bool                 // draw no live lines
	drawn  int                  // number of live lines on the screen
	frame  int                  // counter that selects the spinner's character
	stop   chan struct{}
}

// redraw is the interval at which the live lines are drawn.
const redraw = 100 * time.Millisecond

func newTTY(o Options, mu *sync.Mutex) *tty {
	t := &tty{out: o.Out, err: o.Err, verbose: o.Verbose, style: terminalStyle(o.Color), stop: make(chan struct{})}
	t.began = map[string]time.Time{}
	t.size = func() (int, int) {
		if f, ok := o.Err.(*os.File); ok {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
				return w, h
			}
		}
		return 80, 24
	}
	go t.redrawUntilClosed(mu, t.stop)
	return t
}

// redrawUntilClosed draws the live lines again and again until stop is closed, so that the displayed durations increase.
func (t *tty) redrawUntilClosed(mu *sync.Mutex, stop <-chan struct{}) {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			mu.Lock()
			t.frame++
			t.draw()
			mu.Unlock()
		}
	}
}

// showEvent updates the live lines with an event. After the end of a phase, it prints how the phase ended.
func (t *tty) showEvent(e event.Event) {
	switch e.Kind {
	case event.PhaseStart:
		t.endPhase(e.Phase)
		p := &livePhase{phase: e.Phase, started: e.Time, total: e.Total}
		if e.Phase == event.Build {
			p.total = 0 // the progress bar starts without a total: e.Total counts units, and Nix reports its progress in derivations
		}
		if i := slices.IndexFunc(t.phases, func(p *livePhase) bool { return p.phase == event.Evaluate }); i >= 0 && e.Phase == event.Build {
			t.phases = slices.Insert(t.phases, i, p) // a build that begins during the evaluation waits for it, so its line is before that of the evaluation
		} else {
			t.phases = append(t.phases, p)
		}
		if e.Phase == event.Survey {
			t.printLine(t.style.faint("hive " + e.Text))
		}
	case event.PhaseEnd:
		started := t.findPhase(e.Phase).started
		t.endPhase(e.Phase)
		width, _ := t.size()
		t.printLine(formatPhase(t.style, e, started, min(width, 80)))
	case event.UnitEnd:
		t.findPhase(e.Phase).done += len(e.Units)
	case event.Progress:
		p := t.findPhase(e.Phase)
		p.done, p.total = e.Done, e.Total
	case event.Message:
		t.printLine(formatMessage(t.style, e))
	case event.BuildStart, event.CopyStart:
		p := t.findPhase(e.Phase)
		p.active = append(p.active, trimStorePath(e.Path))
	case event.BuildEnd, event.CopyEnd:
		t.findPhase(e.Phase).removeActive(trimStorePath(e.Path))
	case event.NodeStart, event.NodeProgress, event.NodeLog, event.NodeEnd, event.NodeResult:
		t.showNodeEvent(e)
	case event.Waiting, event.WaitEnd:
		t.nodes.applyEvent(e)
	case event.BuildLog:
		if t.verbose {
			t.printLine(t.style.faint(trimStorePath(e.Path)+"> ") + e.Text)
		}
	}
}

// showNodeEvent updates the line of a node. If the node has ended, it prints the node's result above the live lines.
func (t *tty) showNodeEvent(e event.Event) {
	if t.began[e.Node].IsZero() {
		t.began[e.Node] = e.Time
	}
	t.nodes.applyEvent(e)
	switch {
	case e.Kind == event.NodeResult:
		t.findPhase(e.Phase).done++
		width, _ := t.size()
		t.printLine(formatResult(t.style, e, t.began[e.Node], min(width, 80)))
		delete(t.began, e.Node)
	case e.Kind == event.NodeLog && t.verbose:
		t.printLine(t.style.faint(e.Node+"> ") + e.Text)
	}
}

// findPhase returns the running phase with this name. If it does not run, findPhase returns the phase that began last and still
// runs, or an empty phase.
func (t *tty) findPhase(phase event.Phase) *livePhase {
	for _, p := range t.phases {
		if p.phase == phase {
			return p
		}
	}
	if n := len(t.phases); n > 0 {
		return t.phases[n-1]
	}
	return &livePhase{}
}

func (t *tty) endPhase(phase event.Phase) {
	t.phases = slices.DeleteFunc(t.phases, func(p *livePhase) bool { return p.phase == phase })
}

func (p *livePhase) removeActive(name string) {
	if i := slices.Index(p.active, name); i >= 0 {
		p.active = slices.Delete(p.active, i, i+1)
	}
}

// printLine prints text above the live lines.
func (t *tty) printLine(text string) {
	t.clear()
	fmt.Fprintln(t.err, text)
	t.draw()
}

// clear erases the live lines.
func (t *tty) clear() {
	if t.drawn > 1 {
		fmt.Fprintf(t.err, "\x1b[%dA", t.drawn-1)
	}
	if t.drawn > 0 {
		fmt.Fprint(t.err, "\r\x1b[J")
	}
	t.drawn = 0
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// draw replaces the live lines with the current ones.
func (t *tty) draw() {
	t.clear()
	if t.still {
		return
	}
	width, height := t.size()
	now := time.Now()
	var lines []string
	if len(t.phases) > 0 {
		lines = append(lines, t.formatCurrentPhase(width, now))
	}
	if len(t.phases) > 0 || t.nodes.hasWaits() {
		lines = append(lines, t.nodes.draw(max(height-3, 1), width, now)...)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprint(t.err, strings.Join(lines, "\n"))
	t.drawn = len(lines)
}

// formatCurrentPhase returns the live line of the last running phase.
func (t *tty) formatCurrentPhase(width int, now time.Time) string {
	p := t.phases[len(t.phases)-1]
	var parts []string
	if p.total > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d", p.done, p.total))
	}
	parts = append(parts, p.active...)
	for _, other := range t.phases[:len(t.phases)-1] { // the other phases that run now, for one of which the last phase may wait
		parts = append(parts, string(other.phase))
	}
	left := fmt.Sprintf("%-9s %s", p.phase, strings.Join(parts, " · "))
	// room is the width for the text. It leaves 2 columns for the spinner and 8 for the duration, and 1 so that the line does not
	// wrap.
	room := max(width-11, 20)
	left = padRight(truncate(left, room), min(room, 66))
	return fmt.Sprintf("%c %s %s", spinner[t.frame%len(spinner)], left, formatDuration(now.Sub(p.started)))
}

// truncate shortens s to width columns, with … at the end.
func truncate(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// showWaits does nothing: the live lines already show the waits.
func (t *tty) showWaits([]event.Event) {}

func (t *tty) showOutput(node, line string) {
	t.clear()
	fmt.Fprintf(t.out, "%s %s\n", t.style.bold(node)+t.style.faint(" |"), line)
	t.draw()
}

func (t *tty) prepareRaw() {
	t.clear()
	t.still = true // show no live lines any more: a live line would overwrite an incomplete line of the output
}

func (t *tty) showResult(_ any, human func(io.Writer)) {
	t.phases, t.nodes = nil, nil
	t.clear()
	human(t.out)
}

func (t *tty) showProblems(_ int, problems []Problem) {
	t.phases, t.nodes = nil, nil
	t.clear()
	writeProblems(t.err, t.style, problems)
}

func (t *tty) close() {
	t.phases, t.nodes = nil, nil
	t.clear()
	select {
	case <-t.stop:
	default:
		close(t.stop)
	}
}
