// Package terminal copies between the console of a machine and the user.
package terminal

import (
	"context"
	"errors"
	"io"
	"time"
)

const (
	// pollTime is how long Copy pauses when the console has neither output nor input.
	pollTime = 10 * time.Millisecond
	// maxInput is the maximum number of input bytes that are kept while the console accepts no input.
	maxInput = 64 << 10
)

// Stream is a stream of libvirt that does not block: Recv and Send return -2 without an error if they would block, and 0
// and [io.EOF] at the end.
type Stream interface {
	Recv(p []byte) (int, error)
	Send(p []byte) (int, error)
}

// Copy copies data from the stream to out and from in to the stream, until the stream or in ends, or ctx ends.
func Copy(ctx context.Context, stream Stream, in <-chan []byte, out io.Writer) error {
	buf := make([]byte, 4096)
	var pending []byte // input that was not sent yet
	for {
		pause := pollTime
		switch n, err := stream.Recv(buf); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > 0:
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			pause = 0
		}
		if len(pending) > 0 {
			switch n, err := stream.Send(pending); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case n > 0:
				pending, pause = pending[n:], 0
			}
		}
		receive := in
		if len(pending) > maxInput {
			receive = nil
		}
		select { // check for the end of ctx in each round, so that a user can leave a console that prints all the time or takes no input
		case data, open := <-receive:
			if !open {
				return nil
			}
			pending = append(pending, data...)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
