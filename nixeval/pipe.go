package nixeval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// StartPipe starts a program that reads requests from its stdin and writes replies to its stdout. The returned connection writes
// to the program's stdin and reads from its stdout. Close closes both and waits until the program has ended; after a second it
// kills the program. When ctx is cancelled, the program is ended.
func StartPipe(ctx context.Context, c Command) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, stderr := newProcess(ctx, c)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%s: %w", c.Argv[0], ErrNoNix)
		}
		return nil, err
	}
	return &pipe{Reader: out, Writer: in, end: sync.OnceValue(func() error {
		in.Close()
		out.Close()
		defer time.AfterFunc(time.Second, cancel).Stop()
		defer cancel()
		cmd.Wait() // the exit status of the program does not matter, because the protocol reports errors
		stderr.Flush()
		return nil
	})}, nil
}

type pipe struct {
	io.Reader
	io.Writer
	end func() error
}

func (p *pipe) Close() error { return p.end() }
