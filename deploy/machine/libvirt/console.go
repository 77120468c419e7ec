package libvirt

import (
	"context"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// ConsoleTail returns the last max bytes of a virtual machine's console log, a file in the pool that virtlogd writes
// from the first boot on. libvirt keeps no console log of a container. For a container the result is the first 4 KiB
// of the unread output, and the output during the call.
func (h *Hypervisor) ConsoleTail(ctx context.Context, c provider.Cluster, node string, max int) (string, error) {
	var text []byte
	err := h.runOperation(ctx, func(s *session) error {
		if s.host.kind == provider.Container {
			return s.readContainerConsole(c, node, &text)
		}
		p, err := s.findPool()
		if err != nil || p == nil {
			return err
		}
		defer p.free()
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
	text = text[len(text)-min(max, len(text)):]
	return strings.ToValidUTF8(string(text), "?"), nil
}

func (s *session) readContainerConsole(c provider.Cluster, node string, text *[]byte) error {
	d, err := s.findMachine(c, node)
	if err != nil || d == nil {
		return err
	}
	defer d.free()
	if !d.isMachineOfNode(c, node) {
		return nil
	}
	// Use a separate connection: a read from a console without output blocks until the connection is closed.
	conn, err := libvirt.NewConnect(s.h.o.URI)
	if err != nil {
		return err
	}
	defer conn.Close()
	own, err := conn.LookupDomainByName(d.Name)
	if err != nil {
		return err
	}
	defer func() { _ = own.Free() }()
	stream, err := conn.NewStream(libvirt.STREAM_NONBLOCK)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Free() }()
	if err := own.OpenConsole("", stream, 0); err != nil {
		return nil // the container is off, or another client reads the console
	}
	buf := make([]byte, 4096)
	for since := time.Now(); time.Since(since) < consoleReadTime; {
		n, err := stream.Recv(buf)
		if n > 0 {
			*text = append(*text, buf[:n]...)
			continue
		}
		if err != nil || n != -2 { // -2: no data yet
			break
		}
		if err := s.sleep(20 * time.Millisecond); err != nil {
			break
		}
	}
	_ = stream.Abort()
	return nil
}

// consoleReadTime is how long ConsoleTail reads a container's console.
const consoleReadTime = 300 * time.Millisecond
