package libvirt

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"
)

// echoStream is a console that prints what it receives, a few bytes at a time.
type echoStream struct {
	text  []byte
	ended bool
	block bool // the next Send would block
}

func (s *echoStream) Recv(p []byte) (int, error) {
	switch {
	case len(s.text) > 0:
		n := copy(p, s.text)
		s.text = s.text[n:]
		return n, nil
	case s.ended:
		return 0, nil
	}
	return wouldBlock, errors.New("would block")
}

func (s *echoStream) Send(p []byte) (int, error) {
	if s.block = !s.block; s.block {
		return wouldBlock, errors.New("would block")
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
