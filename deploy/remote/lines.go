package remote

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
	"unicode/utf8"
)

// longestLine is the default of Lines.Max in bytes. It limits the memory that is used for output without line ends.
const longestLine = 64 << 10

// Lines is a writer for Cmd.Stdout or Cmd.Stderr, or for both. It calls a function for each line. Call Flush after Run,
// because the last line may have no line end.
type Lines struct {
	// Each is called for every line, without its line end. If a line is longer than Max, Each is called for each piece
	// of the line, and continued is true for all pieces except the first.
	Each func(line string, continued bool)

	// Err is called after each write. If it returns an error, the write fails, and the command is ended. If Err is nil,
	// writes do not fail.
	Err func() error

	Max int // maximal length for one call, in bytes; 0: 64 KiB

	mu        sync.Mutex
	rest      []byte
	continued bool
}

// Write calls Each for every complete line in p, and keeps the rest for the next call.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := len(p)
	for len(p) > 0 {
		line, after, ended := bytes.Cut(p, []byte("\n"))
		// Pass a long line on in pieces, so that at most Max bytes are buffered.
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
	if l.Err != nil {
		return total, l.Err()
	}
	return total, nil
}

// Flush calls Each for the last line if that line has no line end.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.passLine()
	}
}

func (l *Lines) maxPiece() int { return cmp.Or(l.Max, longestLine) }

// passPiece calls Each for the first Max bytes of a line that is longer than Max. It splits the line between two UTF-8
// characters, so the piece may be shorter.
func (l *Lines) passPiece() {
	at := l.maxPiece()
	for back := 1; back < utf8.UTFMax && back < at && !utf8.RuneStart(l.rest[at]); back++ {
		at--
	}
	if !utf8.RuneStart(l.rest[at]) {
		at = l.maxPiece() // not UTF-8
	}
	l.Each(string(l.rest[:at]), l.continued)
	l.rest = append(l.rest[:0], l.rest[at:]...)
	l.continued = true
}

// passLine calls Each for the buffered line, or for the rest of a line that passPiece has split.
func (l *Lines) passLine() {
	l.Each(strings.TrimSuffix(string(l.rest), "\r"), l.continued)
	l.rest, l.continued = l.rest[:0], false
}
