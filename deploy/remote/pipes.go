package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// sink passes output on. If the writer fails, the command is aborted: without
// a reader it would otherwise fill its window and hang.
type sink struct {
	w     io.Writer
	abort context.CancelCauseFunc
	lock  chan struct{} // a mutex that can be waited for with a limit
}

func newSink(w io.Writer, abort context.CancelCauseFunc) *sink {
	return &sink{w: w, abort: abort, lock: make(chan struct{}, 1)}
}

func (s *sink) Write(p []byte) (int, error) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	if s.w == nil {
		return len(p), nil
	}
	if _, err := s.w.Write(p); err != nil {
		s.w = nil
		s.abort(fmt.Errorf("write its output: %w", err))
	}
	return len(p), nil
}

// ReadFrom has io.Copy use our buffer.
func (s *sink) ReadFrom(r io.Reader) (int64, error) { return frugalCopy(s, r) }

// shut makes sure that a cancelled command's late output is not written after
// Run has returned, unless the writer itself is stuck.
func (s *sink) discardRest() {
	select {
	case s.lock <- struct{}{}:
		s.w = nil
		<-s.lock
	case <-time.After(100 * time.Millisecond):
	}
}

const (
	smallBuffer = 1 << 10
	bigBuffer   = 8 << 10 // a channel keeps what it was once given to send
)

// frugalCopy is io.Copy with a buffer that is small until it is filled. Otherwise each of a
// thousand nodes with little output would use 64 KiB.
func frugalCopy(w io.Writer, r io.Reader) (int64, error) {
	var total int64
	buf := make([]byte, smallBuffer)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			written, writeErr := w.Write(buf[:n])
			total += int64(written)
			if writeErr != nil {
				return total, writeErr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		if n == len(buf) && n < bigBuffer {
			buf = make([]byte, bigBuffer)
		}
	}
}

// source records how reading ended.
type recordingReader struct {
	r   io.Reader
	err error
}

func (s *recordingReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// serialize makes one writer for both streams safe, as os/exec does.
func serializeWriters(stdout, stderr io.Writer) (io.Writer, io.Writer) {
	if stdout == nil || !isSameWriter(stdout, stderr) {
		return stdout, stderr
	}
	both := &lockedWriter{w: stdout}
	return both, both
}

// same compares writers whose types may not be comparable.
func isSameWriter(a, b io.Writer) (equal bool) {
	defer func() {
		if recover() != nil {
			equal = false
		}
	}()
	return a == b
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
