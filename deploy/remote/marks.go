package remote

import (
	"bytes"
	"io"
	"regexp"
	"sync"
)

// Kinds of marks. A mark is a text that the scripts around a command, or sudo, print. It consists of a prefix (random for each command)
// and the kind. For pidMark and runMark, a colon, a process id and a line end follow. These two marks are in stderr and in stdout.
const (
	pidMark  = "pid"   // the shell that executes the escalation command has started
	runMark  = "run"   // the shell that executes the command itself, as root if necessary, has started
	passMark = "pass:" // sudo asks for the password; this is sudo's prompt
)

// maxMark is the maximum length of the part of a mark after its prefix, in bytes.
const maxMark = 24

// markWriter removes the marks from a stream, and calls onMark for each. The text in front of the runMark was printed
// by the login shell or the escalation command; it is written to before. The text after the runMark is output of the
// command. It is written to w unchanged, and is never interpreted as a mark.
type markWriter struct {
	longest int            // maximum length of a mark
	form    *regexp.Regexp // matches a mark
	onMark  func(kind, pid string)
	before  io.Writer
	w       io.Writer

	mu             sync.Mutex
	pending        []byte // the last received bytes, which may contain the beginning of a mark, and so are not written yet
	commandStarted bool
}

func newMarkWriter(prefix string, onMark func(kind, pid string), before, w io.Writer) *markWriter {
	form := regexp.MustCompile(prefix + `(?:(` + passMark + `)|(` + pidMark + `|` + runMark + `):([0-9]{1,19})\n)`)
	return &markWriter{longest: len(prefix) + maxMark, form: form, onMark: onMark, before: before, w: w}
}

// Write writes p without the marks in it. It keeps bytes that may be the beginning of a mark until the next call.
func (m *markWriter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commandStarted {
		return m.w.Write(p)
	}
	m.pending = append(m.pending, p...)
	for !m.commandStarted {
		at := m.form.FindSubmatchIndex(m.pending)
		if at == nil {
			m.writeBefore(len(m.pending) - m.longest)
			return len(p), nil
		}
		mark := m.form.FindSubmatch(m.pending[:at[1]])
		m.writeBefore(at[0])
		m.pending = m.pending[len(mark[0]):]
		kind := string(mark[1]) + string(mark[2]) // one of them is empty
		m.commandStarted = kind == runMark
		m.onMark(kind, string(mark[3]))
	}
	rest := m.pending
	m.pending = nil
	if len(rest) > 0 {
		if _, err := m.w.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// writeBefore writes the first n pending bytes to m.before.
func (m *markWriter) writeBefore(n int) {
	if n > 0 {
		m.before.Write(m.pending[:n])
		m.pending = bytes.Clone(m.pending[n:])
	}
}

// ReadFrom implements io.ReaderFrom, so that io.Copy uses frugalCopy.
func (m *markWriter) ReadFrom(r io.Reader) (int64, error) { return frugalCopy(m, r) }

// flush writes the pending bytes. It is called at the end of the stream, where an incomplete mark is plain text.
func (m *markWriter) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writeBefore(len(m.pending))
}
