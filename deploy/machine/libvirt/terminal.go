package libvirt

import (
	"context"
	"errors"
	"io"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// consolePoll is how long AttachConsole pauses when the console has neither output nor input.
const consolePoll = 10 * time.Millisecond

// maxConsoleInput is the maximum number of bytes that wait for a console that takes no input.
const maxConsoleInput = 64 << 10

// AttachConsole implements [provider.Terminal]. It has a connection to libvirt of its own, which the keepalive of libvirt
// ends if the host does not answer.
func (h *Hypervisor) AttachConsole(ctx context.Context, c provider.Cluster, node string, in <-chan []byte, out io.Writer) error {
	const op = "connect to the console"
	name := ""
	err := h.runOperation(ctx, func(s *session) error {
		d, err := s.findOwnMachine(c, node, op)
		if err != nil {
			return err
		}
		if d == nil {
			return errors.New("there is no such machine")
		}
		defer d.free()
		if state, err := stateOf(d.d); err != nil || state != provider.Running {
			return errors.Join(err, errors.New("the machine does not run"))
		}
		name = d.Name
		return nil
	})
	if err != nil {
		return h.wrapError(node, op, err, "nixbench start starts it")
	}
	conn, err := libvirt.NewConnect(h.o.URI)
	if err != nil {
		return h.wrapError(node, op, err, "")
	}
	defer conn.Close()
	_ = conn.SetKeepAlive(5, 6) // local connections need no keepalive
	d, err := conn.LookupDomainByName(name)
	if err != nil {
		return h.wrapError(node, op, err, "")
	}
	defer func() { _ = d.Free() }()
	stream, err := conn.NewStream(libvirt.STREAM_NONBLOCK)
	if err != nil {
		return h.wrapError(node, op, err, "")
	}
	defer func() { _ = stream.Free() }()
	if err := d.OpenConsole("", stream, 0); err != nil {
		return h.wrapError(node, op, err, "a console has one user: close the other nixbench console, virsh console or virt-manager")
	}
	defer func() { _ = stream.Abort() }()
	return h.wrapError(node, op, copyConsole(ctx, stream, in, out), "")
}

// consoleStream is a stream of libvirt that does not block: Recv and Send return -2 without an error if they would block, and 0
// and [io.EOF] at the end.
type consoleStream interface {
	Recv(p []byte) (int, error)
	Send(p []byte) (int, error)
}

// copyConsole copies between the stream and the user until one of them ends, or ctx does.
func copyConsole(ctx context.Context, stream consoleStream, in <-chan []byte, out io.Writer) error {
	buf := make([]byte, 4096)
	var pending []byte // input that was not sent yet
	for {
		pause := consolePoll
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
		if len(pending) > maxConsoleInput {
			receive = nil
		}
		select { // also while there is output, or input that the console does not take, so that the user can leave it
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
