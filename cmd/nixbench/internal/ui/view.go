// Package ui shows the events, results and errors of nixbench in one of three forms: a stream of
// JSON objects with --json, otherwise live lines if stderr is a terminal, otherwise plain lines.
// Progress is written to stderr and results to stdout, so that results can be piped. With --json,
// progress and results are written to stdout. Other packages send events and do not print.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
)

type Options struct {
	Out, Err io.Writer
	JSON     bool
	Verbose  bool   // also show build logs
	Color    string // always, never, or auto: on a terminal, unless NO_COLOR is set
}

// Problem is one error as the view shows it. An error about several nodes becomes several problems.
type Problem struct {
	Where   string `json:"where,omitempty"` // node, unit or file
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // how to fix the problem
}

type Row = []string

// View shows events, results and problems. It is safe for concurrent use. All text of others (of nodes, logs, the names of store
// paths) passes through [event.Printable], so that it cannot control the terminal.
type View struct {
	mu       sync.Mutex
	out      *errorWriter
	err      io.Writer
	json     *json.Encoder // writes one JSON object per line, the last of which is a result or an error; nil: the view writes text
	verbose  bool
	style    style
	live     *live // nil: no live lines
	progress progress
	stop     chan struct{}
	stopOnce sync.Once
}

// errorWriter writes to Writer, and keeps the first error of a write in err.
type errorWriter struct {
	io.Writer
	err error
}

func (c *errorWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

func (c *errorWriter) Columns() int { return Columns(c.Writer) }

func New(o Options) *View {
	f, _ := o.Err.(*os.File)
	v := newView(o, !o.JSON && f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb")
	go v.updateUntilClosed()
	return v
}

func newView(o Options, onTerminal bool) *View {
	verbose := o.Verbose && !o.JSON
	v := &View{out: &errorWriter{Writer: o.Out}, err: o.Err, verbose: verbose, progress: progress{verbose: verbose}, stop: make(chan struct{})}
	switch {
	case o.JSON:
		v.json = json.NewEncoder(Printable(v.out))
		v.json.SetEscapeHTML(false)
	case onTerminal:
		v.live, v.style = newLive(o.Err), terminalStyle(o.Color)
	default:
		v.style.colour = o.Color == "always"
	}
	return v
}

const (
	drawInterval  = 100 * time.Millisecond // interval at which the live lines are drawn
	checkInterval = time.Second            // interval at which the view checks for activities without output, and reports them together
)

// updateUntilClosed draws the live lines again and again, so that the displayed durations increase. Without live lines, it reports
// activities without output.
func (v *View) updateUntilClosed() {
	interval := checkInterval
	if v.live != nil {
		interval = drawInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-v.stop:
			return
		case now := <-ticker.C:
			v.mu.Lock()
			if v.live != nil {
				v.live.draw(&v.progress)
			} else {
				v.report(v.progress.takeDue(now), now)
			}
			v.mu.Unlock()
		}
	}
}

// maxReports is the maximum number of lines about activities that are written at the same time. Every node may have a wait.
const maxReports = 5

func (v *View) report(due []*activity, now time.Time) {
	for i, a := range due {
		if v.json != nil {
			e := a.Event
			e.Kind, e.Time = event.Waiting, now
			_ = v.json.Encode(e)
			continue
		}
		if i == maxReports-1 && len(due) > maxReports {
			fmt.Fprintf(v.err, "%-9s … and %d more\n", "waiting", len(due)-i)
			return
		}
		fmt.Fprintf(v.err, "%-9s %s\n", "waiting", formatWait(a, now))
	}
}

// Event shows an event, such as the start of a phase or the result of a node.
func (v *View) Event(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.json != nil {
		v.progress.apply(e)
		_ = v.json.Encode(e)
		return
	}
	e = printableEvent(e)
	began := v.progress.apply(e)
	if line := v.formatEvent(e, began); line != "" {
		v.print(func() { fmt.Fprintln(v.err, v.wrap(line)) })
	}
}

// Follow returns a sink for the events of a part of the command that has a log of its own. Live lines show what is in progress in it, and
// nothing remains of it on the terminal. end must be called after the last event.
func (v *View) Follow() (send event.Sink, end func()) {
	if v.live == nil {
		return func(event.Event) {}, func() {}
	}
	send = func(e event.Event) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.progress.apply(printableEvent(e))
	}
	return send, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.progress.open = slices.DeleteFunc(v.progress.open, func(a *activity) bool { return !a.wait || a.Node != "" })
	}
}

// wrap breaks the lines of a text, so that they fit on the terminal.
func (v *View) wrap(text string) string {
	if v.live == nil {
		return text
	}
	width, _ := v.live.size()
	return wrap(text, width)
}

// print calls f, which writes lines of text. The live lines are erased before, and drawn again below.
func (v *View) print(f func()) {
	v.live.clear()
	f()
	v.live.draw(&v.progress)
}

// Result shows the result of a command. With --json it writes value. Otherwise it calls human, which writes the result as text.
func (v *View) Result(value any, human func(io.Writer)) {
	v.showEnd(func() { human(Printable(v.out)) }, struct {
		Time   time.Time `json:"time"`
		Kind   string    `json:"event"`
		Result any       `json:"result"`
	}{time.Now(), "result", value})
}

// Problems shows the errors of a command. With --json it also writes the exit code.
func (v *View) Problems(code int, problems []Problem) {
	v.showEnd(func() { io.WriteString(v.err, v.wrap(formatProblems(v.style, problems))) }, struct {
		Time     time.Time `json:"time"`
		Kind     string    `json:"event"`
		Code     int       `json:"code"`
		Problems []Problem `json:"problems"`
	}{time.Now(), "error", code, problems})
}

// showEnd ends all activities. It calls text, or writes record with --json.
func (v *View) showEnd(text func(), record any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress.open = nil
	if v.json == nil {
		v.print(text)
		return
	}
	_ = v.json.Encode(record)
}

// Stderr returns the writer for progress and questions. Write to it only within [View.Pause].
func (v *View) Stderr() io.Writer { return Printable(v.err) }

// Pause removes the live lines and runs f, which may ask a question. Until f returns, the view writes nothing.
func (v *View) Pause(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live.clear()
	f()
}

// Output writes a line that a program on a node has printed, with the name of the node, if it is not empty.
func (v *View) Output(node, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.json != nil {
		_ = v.json.Encode(event.Event{Time: time.Now(), Kind: event.NodeLog, Node: node, Text: line})
		return
	}
	if line = event.Printable(line); node != "" {
		line = v.style.bold(event.Printable(node)) + v.style.faint(" |") + " " + line
	}
	v.print(func() { fmt.Fprintln(v.out, line) })
}

// Raw returns writers for the stdout and stderr of a program. They write everything unchanged, so that the program can control the
// terminal. Raw is for programs that the user has named, such as the program of `nixbench exec` on one node. After the first
// write, the view shows no live lines.
func (v *View) Raw() (stdout, stderr io.Writer) {
	return rawWriter{v, v.out}, rawWriter{v, v.err}
}

type rawWriter struct {
	view *View
	w    io.Writer
}

func (r rawWriter) Write(p []byte) (int, error) {
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	r.view.live.stop() // a live line would overwrite an incomplete line of the output
	return r.w.Write(p)
}

// Err returns the first error that occurred when the view wrote results or output. A command that runs until Ctrl-C calls it, so
// that it ends when its output can no longer be written.
func (v *View) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out.err
}

// Close ends the view. It returns the first error that occurred while results were written, and shows it on stderr.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopOnce.Do(func() { close(v.stop) })
	v.progress.open = nil
	v.live.stop()
	if v.out.err != nil {
		io.WriteString(v.err, formatProblems(style{}, []Problem{{Message: v.out.err.Error()}}))
	}
	return v.out.err
}
