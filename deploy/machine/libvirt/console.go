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

// ConsoleTail implements [provider.Provider]. For a virtual machine, it returns the end of the console log: virtlogd
// writes this file in the pool from the first boot on. For a container, libvirt keeps no console log. The result is
// then the first 4 KiB of output that nobody has read yet, and the output during the call.
func (h *Hypervisor) ConsoleTail(ctx context.Context, c provider.Cluster, node string, max int) (string, error) {
	type tail struct {
		text      []byte
		container string // name of the domain whose console is read instead
	}
	found, err := query(ctx, h, node, "read the console", "", func(s *session) (t tail, err error) {
		if s.host.kind == provider.Container {
			d, err := s.findMachine(c, node)
			if err == nil && d != nil && d.isMachineOfNode(c, node) {
				t.container = d.Name
			}
			return t, err
		}
		p, err := s.findPool()
		if err != nil || p == nil {
			return t, err
		}
		if err := p.refresh(); err != nil {
			return t, err
		}
		if !s.host.test {
			t.text, err = p.downloadEnd(machineVolumeName(c, node, "console"), max)
		}
		return t, err
	})
	if err != nil {
		return "", err
	}
	text := found.text
	if found.container != "" {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		var out bytes.Buffer
		// An error is ignored: the container is off, or another client reads the console.
		_ = h.withConsole(found.container, func(stream consoleStream) error { return copyConsole(short, stream, nil, &out) })
		text = out.Bytes()
	}
	text = text[len(text)-min(max, len(text)):]
	return strings.ToValidUTF8(string(text), "?"), nil
}

func (h *Hypervisor) AttachConsole(ctx context.Context, c provider.Cluster, node string, in <-chan []byte, out io.Writer) error {
	const op = "connect to the console"
	name, err := query(ctx, h, node, op, "nixbench start starts it", func(s *session) (string, error) {
		d, err := s.findOwnMachine(c, node, op)
		if err != nil {
			return "", err
		}
		if d == nil {
			return "", errors.New("there is no such machine")
		}
		if state, err := stateOf(d.d); err != nil || state != provider.Running {
			return "", errors.Join(err, errors.New("the machine does not run"))
		}
		return d.Name, nil
	})
	if err != nil {
		return err
	}
	err = h.withConsole(name, func(stream consoleStream) error {
		return h.wrapError(node, op, copyConsole(ctx, stream, in, out), "")
	})
	return h.wrapError(node, op, err, "a console has one user: close the other nixbench console, virsh console or virt-manager")
}

// withConsole calls use with the console of a domain. It opens a separate connection to libvirt for two reasons. A read from a console
// without output blocks the connection. And if the host does not answer, the keepalive of libvirt ends the connection.
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

const (
	pollTime = 10 * time.Millisecond
	// maxInput is the maximum number of input bytes that are kept while the console accepts no input.
	maxInput = 64 << 10
)

// consoleStream is a stream of libvirt that does not block: Recv and Send return -2 without an error if they would block, and 0
// and [io.EOF] at the end.
type consoleStream interface {
	Recv(p []byte) (int, error)
	Send(p []byte) (int, error)
}

// copyConsole copies data from the stream to out and from in to the stream, until the stream or in ends, or ctx ends.
func copyConsole(ctx context.Context, stream consoleStream, in <-chan []byte, out io.Writer) error {
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
