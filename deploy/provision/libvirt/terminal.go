package libvirt

import (
	"context"
	"errors"
	"io"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision"
)

// consolePoll is how long AttachConsole pauses when the console has neither output nor input.
const consolePoll = 10 * time.Millisecond

// AttachConsole implements [provision.Terminal]. It has a connection to libvirt of its own, which the keepalive of libvirt
// ends if the host does not answer.
func (h *Hypervisor) AttachConsole(ctx context.Context, c provision.Cluster, node string, in <-chan []byte, out io.Writer) error {
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
		if state, err := stateOf(d.d); err != nil || state != provision.Running {
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

// consoleStream is a stream of libvirt that does not block: Recv and Send return -2 if they would block, and Recv returns
// 0 at the end.
type consoleStream interface {
	Recv(p []byte) (int, error)
	Send(p []byte) (int, error)
}

const wouldBlock = -2

// copyConsole copies between the stream and the user until one of them ends, or ctx does.
func copyConsole(ctx context.Context, stream consoleStream, in <-chan []byte, out io.Writer) error {
	buf := make([]byte, 4096)
	var pending []byte // input that was not sent yet
	for {
		n, err := stream.Recv(buf)
		switch {
		case n > 0:
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			continue
		case n == 0:
			return nil
		case n != wouldBlock:
			return err
		}
		if len(pending) > 0 {
			switch n, err := stream.Send(pending); {
			case n >= 0:
				pending = pending[n:]
				continue
			case n != wouldBlock:
				return err
			}
		}
		receive := in
		if len(pending) > 0 {
			receive = nil
		}
		select {
		case data, open := <-receive:
			if !open {
				return nil
			}
			pending = data
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(consolePoll):
		}
	}
}
