// Package lines splits the output of a program into lines.
package lines

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
)

// longest is the default of Writer.Max. It limits the memory that is used for output without line ends.
const longest = 1 << 20

// Writer calls a function for each line that is written to it. Call Flush at the end of the output, because the last line
// may have no line end. A Writer may be used for stdout and stderr of a program at the same time.
type Writer struct {
	Each func(line string) // called for every line, without its line end
	Err  func() error      // called after each write; if it returns an error, the write fails; may be nil
	Max  int               // maximal length of a line in bytes, the rest of a longer line is dropped; 0: 1 MiB

	mu   sync.Mutex
	rest []byte // the unfinished last line
}

// Write calls Each for every complete line in p, and keeps the rest for the next call.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for after, ended := p, true; ended; {
		var line []byte
		line, after, ended = bytes.Cut(after, []byte("\n"))
		room := cmp.Or(w.Max, longest) - len(w.rest)
		w.rest = append(w.rest, line[:min(len(line), room)]...)
		if ended {
			w.pass()
		}
	}
	if w.Err != nil {
		return len(p), w.Err()
	}
	return len(p), nil
}

// Flush calls Each for the last line if that line has no line end.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.pass()
	}
}

func (w *Writer) pass() {
	w.Each(strings.TrimSuffix(string(w.rest), "\r"))
	w.rest = w.rest[:0]
}
