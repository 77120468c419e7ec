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

// livePhase is a phase that runs. Machines boot while systems are evaluated and built, so
// there may be several.
type livePhase struct {
	phase   event.Phase
	started time.Time
	done    int
	total   int
	active  []string // names of builds and copies that run
}

// tty keeps some live lines: one for the phase that began last, with what it waits for,
// how far it is and how long it takes, and one for each node at work. Everything
// that is over scrolls up as plain text.
type tty struct {
	out, err io.Writer
	size     func() (width, height int)
	verbose  bool
	style    style

	phases []*livePhase // those that run, in the order in which they began
	nodes  nodeLines
	began  map[string]time.Time // when each node was first heard of
	drawn  int                  // live lines on the screen
	frame  int
	stop   chan struct{}
}

const redraw = 100 * time.Millisecond

func newTTY(o Options, mu *sync.Mutex) *tty {
	t := &tty{out: o.Out, err: o.Err, verbose: o.Verbose, style: terminalStyle(), stop: make(chan struct{})}
	t.began = map[string]time.Time{}
	t.size = func() (int, int) {
		if f, ok := o.Err.(*os.File); ok {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
				return w, h
			}
		}
		return 80, 24
	}
	go t.tick(mu, t.stop)
	return t
}

// tick redraws until the view is closed, so that the clock on screen moves.
func (t *tty) tick(mu *sync.Mutex, stop <-chan struct{}) {
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

func (t *tty) event(e event.Event) {
	switch e.Kind {
	case event.PhaseStart:
		t.end(e.Phase)
		p := &livePhase{phase: e.Phase, started: e.Time, total: e.Total}
		if e.Phase == event.Build {
			p.total = 0 // Nix counts derivations; how many there are it says itself
		}
		t.phases = append(t.phases, p)
		if e.Phase == event.Survey {
			t.line(t.style.faint("hive " + e.Text))
		}
	case event.PhaseEnd:
		started := t.of(e.Phase).started
		t.end(e.Phase)
		width, _ := t.size()
		t.line(phaseLine(t.style, e, started, min(width, 80)))
	case event.UnitEnd:
		t.of(e.Phase).done += len(e.Units)
	case event.Progress:
		p := t.of(e.Phase)
		p.done, p.total = e.Done, e.Total
	case event.Message:
		t.line(messageLine(t.style, e))
	case event.BuildStart, event.CopyStart:
		p := t.of(e.Phase)
		p.active = append(p.active, drvName(e.Path))
	case event.BuildEnd, event.CopyEnd:
		t.of(e.Phase).drop(drvName(e.Path))
	case event.NodeStart, event.NodeProgress, event.NodeLog, event.NodeEnd, event.NodeResult:
		t.node(e)
	case event.Waiting, event.WaitEnd:
		t.nodes.event(e)
	case event.BuildLog:
		if t.verbose {
			t.line(t.style.faint(drvName(e.Path)+"> ") + e.Text)
		}
	}
}

func (t *tty) node(e event.Event) {
	if t.began[e.Node].IsZero() {
		t.began[e.Node] = e.Time
	}
	t.nodes.event(e)
	switch {
	case e.Kind == event.NodeResult:
		t.of(e.Phase).done++
		width, _ := t.size()
		t.line(resultLine(t.style, e, t.began[e.Node], min(width, 80)))
		delete(t.began, e.Node)
	case e.Kind == event.NodeLog && t.verbose:
		t.line(t.style.faint(e.Node+"> ") + e.Text)
	}
}

// of is the phase that an event is about; the one that began last, where it does not run.
func (t *tty) of(phase event.Phase) *livePhase {
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

func (t *tty) end(phase event.Phase) {
	t.phases = slices.DeleteFunc(t.phases, func(p *livePhase) bool { return p.phase == phase })
}

func (p *livePhase) drop(name string) {
	if i := slices.Index(p.active, name); i >= 0 {
		p.active = slices.Delete(p.active, i, i+1)
	}
}

// line writes text above the live line.
func (t *tty) line(text string) {
	t.clear()
	fmt.Fprintln(t.err, text)
	t.draw()
}

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

func (t *tty) draw() {
	t.clear()
	width, height := t.size()
	now := time.Now()
	var lines []string
	if len(t.phases) > 0 {
		lines = append(lines, t.phaseNow(width, now))
	}
	if len(t.phases) > 0 || t.nodes.wait() {
		lines = append(lines, t.nodes.draw(max(height-3, 1), width, now)...)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprint(t.err, strings.Join(lines, "\n"))
	t.drawn = len(lines)
}

// phaseNow is the live line of the phase.
func (t *tty) phaseNow(width int, now time.Time) string {
	p := t.phases[len(t.phases)-1]
	var parts []string
	if p.total > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d", p.done, p.total))
	}
	parts = append(parts, p.active...)
	for _, other := range t.phases[:len(t.phases)-1] { // what goes on beside it, and may be waited for
		parts = append(parts, string(other.phase))
	}
	left := fmt.Sprintf("%-9s %s", p.phase, strings.Join(parts, " · "))
	// Two columns for the spinner, eight for the clock, one so that nothing wraps.
	room := max(width-11, 20)
	left = pad(cut(left, room), min(room, 66))
	return fmt.Sprintf("%c %s %s", spinner[t.frame%len(spinner)], left, seconds(now.Sub(p.started)))
}

// cut shortens s to width columns.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// waiting has nothing to do: what goes on is on the screen.
func (t *tty) waiting([]event.Event) {}

func (t *tty) output(node, line string) {
	t.clear()
	fmt.Fprintf(t.out, "%s %s\n", t.style.bold(node)+t.style.faint(" |"), line)
	t.draw()
}

func (t *tty) result(_ any, human func(io.Writer)) {
	t.phases, t.nodes = nil, nil
	t.clear()
	human(t.out)
}

func (t *tty) problems(_ int, problems []Problem) {
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
