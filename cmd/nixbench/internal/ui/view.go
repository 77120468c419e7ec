package ui

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
)

// Options configure a view.
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

// Row is a line of a table.
type Row []string

// renderer writes one of the three forms of output: JSON, live lines or plain lines. The view calls one method at a time.
type renderer interface {
	showEvent(event.Event)
	showWaits([]event.Event) // activities without output, to be reported again
	showOutput(node, line string)
	prepareRaw() // called before raw output is written
	showResult(value any, human func(io.Writer))
	showProblems(code int, problems []Problem)
	close()
}

// View shows events, results and problems. It is safe for concurrent use.
type View struct {
	mu    sync.Mutex
	r     renderer
	live  *tty // the renderer, if it shows live lines
	out   *errorWriter
	err   io.Writer
	watch watch
	stop  chan struct{}
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

// Columns returns the width of the terminal, or 0. See [Columns].
func (c *errorWriter) Columns() int { return Columns(c.Writer) }

// New returns a view: JSON if o.JSON is set, otherwise live lines if o.Err is a terminal, otherwise
// plain lines.
func New(o Options) *View {
	v := &View{out: &errorWriter{Writer: o.Out}, err: o.Err, watch: watch{verbose: o.Verbose && !o.JSON}, stop: make(chan struct{})}
	o.Out = v.out
	switch {
	case o.JSON:
		v.r = newJSON(Printable(o.Out))
	case isTerminal(o.Err) && os.Getenv("TERM") != "dumb":
		v.live = newTTY(o, &v.mu)
		v.r = printable{v.live}
	default:
		v.r = printable{&plain{out: o.Out, err: o.Err, verbose: o.Verbose, style: style{colour: o.Color == "always"}}}
	}
	go v.reportUntilClosed()
	return v
}

// watchInterval is the interval at which the view checks for activities without output.
const watchInterval = 250 * time.Millisecond

// reportUntilClosed periodically reports activities without output, until the view is closed.
func (v *View) reportUntilClosed() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-v.stop:
			return
		case now := <-ticker.C:
			v.mu.Lock()
			if late := v.watch.takeDue(now); len(late) > 0 {
				v.r.showWaits(late)
			}
			v.mu.Unlock()
		}
	}
}

// Event shows an event, such as the start of a phase or the result of a node.
func (v *View) Event(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.applyEvent(e)
	v.r.showEvent(e)
}

// Result shows the result of a command. With --json it writes value. Otherwise it calls human, which writes the result as text.
func (v *View) Result(value any, human func(io.Writer)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.showResult(value, human)
}

// Problems shows the errors of a command. With --json it also writes the exit code.
func (v *View) Problems(code int, problems []Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.showProblems(code, problems)
}

// Stderr returns the writer for progress and questions. Write to it only within [View.Pause].
func (v *View) Stderr() io.Writer { return Printable(v.err) }

// ClearScreen erases the screen, if results are written to a terminal.
func (v *View) ClearScreen() {
	v.Pause(func() { io.WriteString(v.out, "\x1b[H\x1b[J") })
}

// Pause removes the live lines and runs f, which may ask the user a question. Until f returns, the
// view writes nothing.
func (v *View) Pause(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live != nil {
		v.live.clear()
	}
	f()
}

// Output writes a line that a program on a node has printed, with the name of the node.
func (v *View) Output(node, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.r.showOutput(node, line)
}

// Raw returns writers for the stdout and stderr of a program. They write everything unchanged, so that the program can control the
// terminal. Raw is for programs that the user has named, such as the program of `nixbench exec` on one node. After the first
// write, the view shows no live lines.
func (v *View) Raw() (stdout, stderr io.Writer) {
	return rawWriter{v, v.out}, rawWriter{v, v.err}
}

// rawWriter writes unchanged to w, which is the stdout or stderr of the view.
type rawWriter struct {
	view *View
	w    io.Writer
}

func (r rawWriter) Write(p []byte) (int, error) {
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	r.view.r.prepareRaw()
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
	select {
	case <-v.stop:
	default:
		close(v.stop)
	}
	v.r.close()
	if v.out.err != nil {
		writeProblems(v.err, style{}, []Problem{{Message: v.out.err.Error()}})
	}
	return v.out.err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
