package remote

import (
	"bytes"
	"io"
	"strings"
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
	prefix string
	onMark func(kind, pid string)
	before io.Writer
	w      io.Writer

	mu             sync.Mutex
	pending        []byte // received bytes that may be the beginning of a mark, and so are not written yet
	commandStarted bool
}

// Write writes p without the marks in it. It keeps bytes that may be the beginning of a mark until the next call.
func (m *markWriter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commandStarted {
		return m.w.Write(p)
	}
	buf := append(m.pending, p...)
	m.pending = nil
	for !m.commandStarted {
		at := bytes.Index(buf, []byte(m.prefix))
		if at < 0 {
			at = len(buf) - overlapLength(buf, m.prefix)
			m.pending = bytes.Clone(buf[at:])
			buf = buf[:at]
			break
		}
		kind, pid, length, incomplete := parseMark(string(buf[at+len(m.prefix):]))
		if incomplete {
			m.pending = bytes.Clone(buf[at:])
			buf = buf[:at]
			break
		}
		end := at + len(m.prefix)
		if length == 0 { // the prefix without a mark is plain output
			if _, err := m.before.Write(buf[:end]); err != nil {
				return 0, err
			}
			buf = buf[end:]
			continue
		}
		if _, err := m.before.Write(buf[:at]); err != nil {
			return 0, err
		}
		buf = buf[end+length:]
		m.commandStarted = kind == runMark
		m.onMark(kind, pid)
	}
	w := m.before
	if m.commandStarted {
		w = m.w
	}
	if len(buf) > 0 {
		if _, err := w.Write(buf); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom, so that io.Copy uses frugalCopy.
func (m *markWriter) ReadFrom(r io.Reader) (int64, error) { return frugalCopy(m, r) }

// flush writes the pending bytes. It is called at the end of the stream, where an incomplete mark is plain text.
func (m *markWriter) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before.Write(m.pending)
	m.pending = nil
}

// parseMark parses the text after a prefix. It returns the mark's length without the prefix, or 0 if
// the text is no mark. If more text is needed to decide, incomplete is true.
func parseMark(rest string) (kind, pid string, length int, incomplete bool) {
	if strings.HasPrefix(rest, passMark) {
		return passMark, "", len(passMark), false
	}
	if strings.HasPrefix(passMark, rest) {
		return "", "", 0, true
	}
	line, _, whole := strings.Cut(rest, "\n")
	for _, kind := range []string{pidMark, runMark} {
		digits, ok := strings.CutPrefix(line, kind+":")
		switch {
		case whole && ok && digits != "" && strings.Trim(digits, "0123456789") == "":
			return kind, digits, len(line) + 1, false
		case !whole && len(rest) < maxMark && (ok || strings.HasPrefix(kind+":", rest)):
			return "", "", 0, true
		}
	}
	return "", "", 0, false
}

// overlapLength returns the number of bytes at the end of buf that are the start of prefix.
func overlapLength(buf []byte, prefix string) int {
	for n := min(len(buf), len(prefix)-1); n > 0; n-- {
		if strings.HasPrefix(prefix, string(buf[len(buf)-n:])) {
			return n
		}
	}
	return 0
}
