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
	Verbose  bool // also show build logs
}

// Problem is an error in the form in which it is shown.
type Problem struct {
	Where   string `json:"where,omitempty"` // node, unit or file
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it
}

// Row is a line of a table.
type Row []string

// renderer is one of the three output forms. View serialises the calls.
type renderer interface {
	event(event.Event)
	waiting([]event.Event) // activities that have had no output for a while
	output(node, line string)
	result(value any, human func(io.Writer))
	problems(code int, problems []Problem)
	close()
}

// View shows events, results and problems. It is safe for concurrent use.
type View struct {
	mu    sync.Mutex
	r     renderer
	out   *errorWriter
	watch watch
	stop  chan struct{}
}

// errorWriter keeps the first write error.
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

// New returns a view in the form that the options and the terminal require.
func New(o Options) *View {
	v := &View{out: &errorWriter{Writer: o.Out}, watch: watch{verbose: o.Verbose && !o.JSON}, stop: make(chan struct{})}
	o.Out = v.out
	switch {
	case o.JSON:
		v.r = newJSON(o.Out)
	case isTerminal(o.Err) && os.Getenv("TERM") != "dumb":
		v.r = newTTY(o, &v.mu)
	default:
		v.r = &plain{out: o.Out, err: o.Err, verbose: o.Verbose}
	}
	go v.tick()
	return v
}

// watchInterval is the interval of checks for activities without output.
const watchInterval = 250 * time.Millisecond

// tick reports activities without output until the view is closed.
func (v *View) tick() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-v.stop:
			return
		case now := <-ticker.C:
			v.mu.Lock()
			if late := v.watch.late(now); len(late) > 0 {
				v.r.waiting(late)
			}
			v.mu.Unlock()
		}
	}
}

// Event shows an event.
func (v *View) Event(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.event(e)
	v.r.event(e)
}

// Result shows the result of a command: value with --json, otherwise the text that human writes.
func (v *View) Result(value any, human func(io.Writer)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.result(value, human)
}

// Problems shows why a command fails, and its exit code.
func (v *View) Problems(code int, problems []Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.problems(code, problems)
}

// Pause runs f while nothing else is written to the terminal, for a question to the user.
func (v *View) Pause(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t, ok := v.r.(*tty); ok {
		t.clear()
	}
	f()
}

// Output writes a line that a program on a node has printed.
func (v *View) Output(node, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.r.output(node, line)
}

// Close ends the view. It returns an error if results could not be written.
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
		v.r.problems(1, []Problem{{Message: v.out.err.Error()}})
	}
	return v.out.err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
