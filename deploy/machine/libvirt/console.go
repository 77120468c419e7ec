package libvirt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

const (
	// consoleReadTime is how long ConsoleTail reads a container's console.
	consoleReadTime = 300 * time.Millisecond
	// consolePoll is how long copyConsole pauses when the console has neither output nor input.
	consolePoll = 10 * time.Millisecond
	// maxConsoleInput is the maximum number of bytes that wait for a console that takes no input.
	maxConsoleInput = 64 << 10
)

// ConsoleTail implements [provider.Console]. It returns the end of a virtual machine's console log, a file in the pool that virtlogd writes
// from the first boot on. libvirt keeps no console log of a container. For a container the result is the first 4 KiB
// of the unread output, and the output during the call.
func (h *Hypervisor) ConsoleTail(ctx context.Context, c provider.Cluster, node string, max int) (string, error) {
	var text []byte
	container := ""
	err := h.runOperation(ctx, func(s *session) error {
		if s.host.kind == provider.Container {
			d, err := s.findMachine(c, node)
			if err == nil && d != nil && d.isMachineOfNode(c, node) {
				container = d.Name
			}
			return err
		}
		p, err := s.findPool()
		if err != nil || p == nil {
			return err
		}
		if err := p.refresh(); err != nil {
			return err
		}
		name := machineVolumeName(c, node, "console")
		if there, err := p.hasVolume(name); err != nil || !there || s.host.test {
			return err
		}
		text, err = p.downloadEnd(name, max)
		return err
	})
	if err != nil { // text is not read, because the abandoned operation may still write it
		return "", h.wrapError(node, "read the console", err, "")
	}
	if container != "" {
		short, cancel := context.WithTimeout(ctx, consoleReadTime)
		defer cancel()
		var out bytes.Buffer
		// An error is ignored: the container is off, or another client reads the console.
		_ = h.withConsole(container, func(stream consoleStream) error { return copyConsole(short, stream, nil, &out) })
		text = out.Bytes()
	}
	text = text[len(text)-min(max, len(text)):]
	return strings.ToValidUTF8(string(text), "?"), nil
}

// AttachConsole implements [provider.Console].
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
		if state, err := stateOf(d.d); err != nil || state != provider.Running {
			return errors.Join(err, errors.New("the machine does not run"))
		}
		name = d.Name
		return nil
	})
	if err != nil {
		return h.wrapError(node, op, err, "nixbench start starts it")
	}
	err = h.withConsole(name, func(stream consoleStream) error { return h.wrapError(node, op, copyConsole(ctx, stream, in, out), "") })
	return h.wrapError(node, op, err, "a console has one user: close the other nixbench console, virsh console or virt-manager")
}

// withConsole calls use with the console of a domain. It opens a connection of its own, because a read from a console without output
// blocks its connection, and because the keepalive of libvirt ends it if the host does not answer.
func (h *Hypervisor) withConsole(domain string, use func(consoleStream) error) error {
	conn, err := libvirt.NewConnect(h.o.URI)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetKeepAlive(5, 6) // local connections need no keepalive
	d, err := conn.LookupDomainByName(domain)
	if err != nil {
		return err
	}
	defer func() { _ = d.Free() }()
	stream, err := conn.NewStream(libvirt.STREAM_NONBLOCK)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Free() }()
	if err := d.OpenConsole("", stream, 0); err != nil {
		return err
	}
	defer func() { _ = stream.Abort() }()
	return use(stream)
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
