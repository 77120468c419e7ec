package remote

import (
	"bytes"
	"cmp"
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
	prefix []byte // of each mark
	onMark func(kind, pid string)
	before io.Writer
	w      io.Writer

	mu             sync.Mutex
	pending        []byte // the last received bytes, which may contain the beginning of a mark, and so are not written yet
	commandStarted bool
}

// markRE matches a mark after its prefix.
var markRE = regexp.MustCompile(`^(?:(` + passMark + `)|(` + pidMark + `|` + runMark + `):([0-9]{1,19})\n)`)

func newMarkWriter(prefix string, onMark func(kind, pid string), before, w io.Writer) *markWriter {
	return &markWriter{prefix: []byte(prefix), onMark: onMark, before: before, w: w}
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
		before, mark := m.findMark()
		if mark == nil {
			m.writeBefore(len(m.pending) - len(m.prefix) - maxMark)
			return len(p), nil
		}
		m.writeBefore(before)
		m.pending = m.pending[len(m.prefix)+len(mark[0]):]
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

// findMark returns the first mark in the pending bytes, as the submatches of markRE, and the number of bytes in front of it.
func (m *markWriter) findMark() (before int, mark [][]byte) {
	for after := 0; ; {
		at := bytes.Index(m.pending[after:], m.prefix)
		if at < 0 {
			return 0, nil
		}
		after += at + len(m.prefix)
		if mark := markRE.FindSubmatch(m.pending[after:]); mark != nil {
			return after - len(m.prefix), mark
		}
	}
}

// writeBefore writes the first n pending bytes to m.before.
func (m *markWriter) writeBefore(n int) {
	if n > 0 {
		m.before.Write(m.pending[:n])
		m.pending = bytes.Clone(m.pending[n:])
	}
}

// ReadFrom implements io.ReaderFrom, so that io.Copy uses a small buffer. With the usual buffers, each of a thousand nodes would use
// 64 KiB even for little output.
func (m *markWriter) ReadFrom(r io.Reader) (int64, error) {
	total, readErr, writeErr := growingCopy(m, r, bigBuffer)
	return total, cmp.Or(writeErr, readErr)
}

// flush writes the pending bytes. It is called at the end of the stream, where an incomplete mark is plain text.
func (m *markWriter) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writeBefore(len(m.pending))
}
