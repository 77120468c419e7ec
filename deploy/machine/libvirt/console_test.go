package libvirt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// echoStream is a console that prints what it receives, a few bytes at a time. It returns what a stream of libvirt returns.
type echoStream struct {
	text   []byte
	ended  bool
	block  bool  // the next Send would block
	steady bool  // the output has no end
	full   bool  // no Send is possible
	lost   error // the error of Recv after text, and of Send
}

const wouldBlock = -2

func (s *echoStream) Recv(p []byte) (int, error) {
	switch {
	case len(s.text) > 0:
		n := copy(p, s.text)
		s.text = s.text[n:]
		return n, nil
	case s.steady:
		return copy(p, "text\n"), nil
	case s.lost != nil:
		return 0, s.lost
	case s.ended:
		return 0, io.EOF
	}
	return wouldBlock, nil
}

func (s *echoStream) Send(p []byte) (int, error) {
	if s.block = !s.block; s.block || s.full {
		return wouldBlock, nil
	}
	if s.lost != nil {
		return 0, s.lost
	}
	p = p[:min(3, len(p))]
	s.text = append(s.text, p...)
	s.ended = bytes.Contains(s.text, []byte("!"))
	return len(p), nil
}

func TestCopyConsole(t *testing.T) {
	in := make(chan []byte, 2)
	in <- []byte("login")
	in <- []byte(" root!")
	var out bytes.Buffer
	if err := copyConsole(t.Context(), &echoStream{text: []byte("boots\n")}, in, &out); err != nil || out.String() != "boots\nlogin root!" {
		t.Errorf("%q, %v", out.String(), err)
	}
	close(in)
	out.Reset()
	if err := copyConsole(t.Context(), &echoStream{text: []byte("rest")}, in, &out); err != nil || out.String() != "rest" {
		t.Errorf("the user has detached: %q, %v", out.String(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := copyConsole(ctx, &echoStream{}, nil, &out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

// The user can leave a console whose output has no end, and one that takes no input. nixbench leaves them when it is stopped.
func TestLeaveConsole(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, stream := range []*echoStream{{steady: true}, {full: true}, {steady: true, full: true}} {
		in := make(chan []byte, 1)
		in <- []byte("stop")
		close(in)
		if err := copyConsole(ctx, stream, in, untilDone{ctx}); err != nil {
			t.Errorf("the user has detached: %v", err)
		}
	}
	stopped, stop := context.WithCancelCause(t.Context())
	reason := errors.New("terminated")
	stop(reason)
	if err := copyConsole(stopped, &echoStream{steady: true}, nil, untilDone{ctx}); !errors.Is(err, reason) {
		t.Errorf("err = %v", err)
	}
}

// untilDone fails when its context is done, which ends a copy that ignores its own one.
type untilDone struct{ context.Context }

func (w untilDone) Write(p []byte) (int, error) {
	if w.Err() != nil {
		return 0, errors.New("the copy has not ended")
	}
	return len(p), nil
}

// A console that breaks is no console that ends.
func TestCopyLostConsole(t *testing.T) {
	lost := errors.New("connection to the host was lost")
	var out bytes.Buffer
	if err := copyConsole(t.Context(), &echoStream{text: []byte("boots"), lost: lost}, nil, &out); !errors.Is(err, lost) || out.String() != "boots" {
		t.Errorf("%q, %v", out.String(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	in := make(chan []byte, 1)
	in <- []byte("login")
	if err := copyConsole(t.Context(), &echoStream{steady: true, lost: lost}, in, untilDone{ctx}); !errors.Is(err, lost) {
		t.Errorf("while sending: %v", err)
	}
}
