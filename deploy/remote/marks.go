package remote

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// The marks that a command's first processes write to stderr, behind a prefix
// that is random for each command.
const (
	pidMark  = "pid" // PID: the escalation command starts
	runMark  = "run" // PID: the command itself starts
	passMark = "pass:"
)

// maxMark bounds a mark: prefix, kind, colon, process id, newline.
const maxMark = 24

// markWriter removes the marks from a stream and passes on the rest. After the mark of the command
// itself it removes nothing, so that output of the command is never taken for a mark.
type markWriter struct {
	prefix string
	seen   func(kind, pid string)
	w      io.Writer

	mu      sync.Mutex
	pending []byte // may be the start of a mark
	over    bool
}

func (m *markWriter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return m.w.Write(p)
	}
	buf := append(m.pending, p...)
	m.pending = nil
	for !m.over {
		at := bytes.Index(buf, []byte(m.prefix))
		if at < 0 {
			at = len(buf) - overlap(buf, m.prefix)
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
		if length == 0 { // the prefix, but no mark: plain output
			if _, err := m.w.Write(buf[:end]); err != nil {
				return 0, err
			}
			buf = buf[end:]
			continue
		}
		if _, err := m.w.Write(buf[:at]); err != nil {
			return 0, err
		}
		buf = buf[end+length:]
		m.over = kind == runMark
		m.seen(kind, pid)
	}
	if len(buf) > 0 {
		if _, err := m.w.Write(buf); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// ReadFrom has io.Copy use our buffer.
func (m *markWriter) ReadFrom(r io.Reader) (int64, error) { return frugalCopy(m, r) }

// flush passes on what turned out to be no mark.
func (m *markWriter) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.Write(m.pending)
	m.pending = nil
}

// parseMark reads a mark behind its prefix. Length 0 means that it is none.
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

// overlap is the length of the longest end of buf that starts prefix.
func overlap(buf []byte, prefix string) int {
	for n := min(len(buf), len(prefix)-1); n > 0; n-- {
		if strings.HasPrefix(prefix, string(buf[len(buf)-n:])) {
			return n
		}
	}
	return 0
}
