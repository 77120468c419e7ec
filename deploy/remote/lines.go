package remote

import (
	"bytes"
	"strings"
	"sync"
	"unicode/utf8"
)

// longestLine is the length at which a line is split, for output without line ends.
const longestLine = 64 << 10

// Lines is a Stdout or Stderr, or both, that comes out as lines. Flush it after Run,
// for the last one may lack its end.
type Lines struct {
	// Each gets every line, without its end. One that is too long comes in pieces; all
	// but the first are continued.
	Each func(line string, continued bool)

	Max int // bytes of a piece; 0: 64 KiB

	mu        sync.Mutex
	rest      []byte
	continued bool
}

func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := len(p)
	for len(p) > 0 {
		line, after, ended := bytes.Cut(p, []byte("\n"))
		// Process it in parts, so that at most one piece is buffered.
		for room := l.maxPiece() + 1 - len(l.rest); len(line) >= room; room = l.maxPiece() + 1 - len(l.rest) {
			l.rest = append(l.rest, line[:room]...)
			line = line[room:]
			l.passPiece()
		}
		l.rest = append(l.rest, line...)
		if ended {
			l.passLine()
		}
		p = after
	}
	return total, nil
}

// Flush passes on the last line, if it has no end.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.passLine()
	}
}

func (l *Lines) maxPiece() int {
	if l.Max > 0 {
		return l.Max
	}
	return longestLine
}

// breakLine passes on a piece of a line that has a byte too many. No character is
// torn.
func (l *Lines) passPiece() {
	at := l.maxPiece()
	for back := 1; back < utf8.UTFMax && back < at && !utf8.RuneStart(l.rest[at]); back++ {
		at--
	}
	if !utf8.RuneStart(l.rest[at]) {
		at = l.maxPiece() // it is no text
	}
	l.Each(string(l.rest[:at]), l.continued)
	l.rest = append(l.rest[:0], l.rest[at:]...)
	l.continued = true
}

func (l *Lines) passLine() {
	l.Each(strings.TrimSuffix(string(l.rest), "\r"), l.continued)
	l.rest, l.continued = l.rest[:0], false
}
