package remote

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// outputLimit counts the bytes of stdout and stderr of a command together.
type outputLimit struct {
	max  int64
	read atomic.Int64
}

// sink writes a command's output to w. If w fails or panics, or the limit is exceeded, sink aborts the command. After the limit, Write
// returns an error, so that the SSH session stops reading, and an endless output takes no more processor time. Otherwise sink discards
// the rest of the output, because a command that cannot write would hang. sink recovers a panic of w, because w parses data from the
// node in a goroutine of the SSH session, and the panic would end the deployment of all nodes.
type sink struct {
	w     io.Writer
	limit *outputLimit
	abort context.CancelCauseFunc
	lock  chan struct{} // used as a mutex, for which a caller can wait with a time limit
}

func newSink(w io.Writer, limit *outputLimit, abort context.CancelCauseFunc) *sink {
	if w == nil {
		w = io.Discard
	}
	return &sink{w: w, limit: limit, abort: abort, lock: make(chan struct{}, 1)}
}

func (s *sink) Write(p []byte) (int, error) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	if s.limit.read.Add(int64(len(p))) > s.limit.max {
		err := &durable.SizeError{Limit: s.limit.max}
		s.abort(fmt.Errorf("write its output: %w", err))
		return 0, err
	}
	if s.w == nil {
		return len(p), nil
	}
	err := failure.Recover(func() error {
		_, err := s.w.Write(p)
		return err
	})
	if err != nil {
		s.w = nil
		s.abort(fmt.Errorf("write its output: %w", err))
	}
	return len(p), nil
}

// discardRest discards all further output, so that w is not used after Run has returned. If a write to
// w blocks, it waits 0.1 seconds at most and does nothing.
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
	bigBuffer   = 8 << 10 // not larger, because an SSH channel keeps a buffer as large as the largest write
	// hugeBuffer is for closures: a channel sends a large write in few pieces.
	hugeBuffer = 256 << 10
)

// growingCopy copies as io.Copy does, and returns errors of reads and writes separately. Its buffer has 1 KiB, and grows to at most
// `most` bytes while reads fill it.
func growingCopy(w io.Writer, r io.Reader, most int) (total int64, readErr, writeErr error) {
	buf := make([]byte, smallBuffer)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			written, writeErr := w.Write(buf[:n])
			total += int64(written)
			if writeErr != nil {
				return total, nil, writeErr
			}
		}
		if err == io.EOF {
			return total, nil, nil
		}
		if err != nil {
			return total, err, nil
		}
		if n == len(buf) && n < most {
			buf = make([]byte, min(8*n, most))
		}
	}
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu    sync.Mutex
	limit int
	data  []byte
	cut   bool // earlier bytes were dropped
}

func newTail(limit int) *tailBuffer { return &tailBuffer{limit: limit} }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - t.limit; over > 0 {
		t.data, t.cut = t.data[:copy(t.data, t.data[over:])], true
	}
	return len(p), nil
}

// String returns the last bytes written. "…" in front means that earlier bytes were dropped.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return "…" + string(t.data)
	}
	return string(t.data)
}
