package libvirt

import (
	"context"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/domainxml"
)

// ConsoleTail of a virtual machine is the end of a file in the pool, which virtlogd writes
// from the first boot on. libvirt keeps no log of a container's console: there it is what was
// printed since this process started the machine, or what is waiting to be read.
func (h *Hypervisor) ConsoleTail(ctx context.Context, c provision.Cluster, node string, max int) (string, error) {
	var text []byte
	err := h.run(ctx, func(s *session) error {
		if s.host.kind == provision.Container {
			return s.containerConsole(c, node, &text)
		}
		p, err := s.findPool()
		if err != nil || p == nil {
			return err
		}
		defer p.free()
		if err := p.refresh(); err != nil {
			return err
		}
		name := machinePart(c, node, "console")
		if there, err := p.has(name); err != nil || !there || s.host.test {
			return err
		}
		text, err = p.download(name, max)
		return err
	})
	text = text[len(text)-min(max, len(text)):]
	return strings.ToValidUTF8(string(text), "?"), h.fail2(node, "read the console", err)
}

func (s *session) containerConsole(c provision.Cluster, node string, text *[]byte) error {
	d, err := s.findDomain(domainxml.DomainName(c, node))
	if err != nil || d == nil {
		return err
	}
	defer d.free()
	if !d.ours(c, node) {
		return nil
	}
	if s.h.consoles.watch(s.conn, c, node, d.d) {
		if err := s.sleep(300 * time.Millisecond); err != nil {
			return err
		}
	}
	*text = s.h.consoles.text(c, node)
	return nil
}

// consoles are those of containers that this process watches.
type consoles struct {
	mu  sync.Mutex
	all map[string]*console
}

type console struct {
	mu   sync.Mutex
	text []byte
	over bool
}

// kept is how much of a console is remembered.
const kept = 64 << 10

// watch begins to read a console, unless it is being read.
func (w *consoles) watch(conn *libvirt.Connect, c provision.Cluster, node string, d *libvirt.Domain) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := c.ID + " " + node
	old := w.all[key]
	if old != nil && !old.ended() {
		return false
	}
	s, err := conn.NewStream(0)
	if err != nil {
		return false
	}
	if err := d.OpenConsole("", s, 0); err != nil { // it has ended, or somebody else reads it
		_ = s.Free()
		return false
	}
	if w.all == nil {
		w.all = map[string]*console{}
	}
	now := &console{}
	if old != nil {
		now.text = old.text
	}
	w.all[key] = now
	go now.read(s)
	return true
}

func (w *consoles) forget(c provision.Cluster, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, c.ID+" "+node)
}

func (w *consoles) text(c provision.Cluster, node string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[c.ID+" "+node]
	if one == nil {
		return nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return append([]byte(nil), one.text...)
}

func (c *console) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// read ends with the machine, or with the connection.
func (c *console) read(s *libvirt.Stream) {
	buf := make([]byte, 4096)
	for {
		n, err := s.Recv(buf)
		c.mu.Lock()
		if err != nil || n <= 0 {
			c.over = true
			c.mu.Unlock()
			_ = s.Abort()
			_ = s.Free()
			return
		}
		c.text = append(c.text, buf[:n]...)
		c.text = c.text[max(0, len(c.text)-kept):]
		c.mu.Unlock()
	}
}
