package ui

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
)

// Options say where a view goes.
type Options struct {
	Out, Err io.Writer
	JSON     bool
	Verbose  bool // build logs, too
}

// Problem is an error as it is shown.
type Problem struct {
	Where   string `json:"where,omitempty"` // node, unit or file
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it
}

// Row is a line of a table.
type Row []string

// renderer is one of the three forms. View serialises the calls.
type renderer interface {
	event(event.Event)
	waiting([]event.Event) // what goes on and has long had no output
	output(node, line string)
	result(value any, human func(io.Writer))
	problems(code int, problems []Problem)
	close()
}

// View shows events, results and problems. It may be used from many goroutines.
type View struct {
	mu    sync.Mutex
	r     renderer
	out   *checked
	watch watch
	stop  chan struct{}
}

// checked remembers that something could not be written.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// New picks the form.
func New(o Options) *View {
	v := &View{out: &checked{Writer: o.Out}, watch: watch{verbose: o.Verbose && !o.JSON}, stop: make(chan struct{})}
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

// lookEvery is how often it is asked whether something has to be named.
const lookEvery = 250 * time.Millisecond

// tick names what goes on without output, until the view is closed.
func (v *View) tick() {
	ticker := time.NewTicker(lookEvery)
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

// Event takes what the core sends.
func (v *View) Event(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.event(e)
	v.r.event(e)
}

// Result shows what a command found out: value as JSON, or what human writes.
func (v *View) Result(value any, human func(io.Writer)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.result(value, human)
}

// Problems shows why a command fails, and with which code it exits.
func (v *View) Problems(code int, problems []Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch.open = nil
	v.r.problems(code, problems)
}

// Pause runs f with the screen to itself, for a question to the user.
func (v *View) Pause(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t, ok := v.r.(*tty); ok {
		t.clear()
	}
	f()
}

// Output writes what a program on a node printed.
func (v *View) Output(node, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.r.output(node, line)
}

// Close ends the live view, if there is one. The error says that results could not
// be written.
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
