package sshtest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Proxy forwards TCP connections to a server. It stands in for the network between client and server.
type Proxy struct {
	listener net.Listener
	to       string
	frozen   chan struct{}
	closed   chan struct{}
	freeze   sync.Once
	end      sync.Once
	work     sync.WaitGroup

	mu   sync.Mutex
	left int64 // bytes from clients until Freeze; negative: no limit
	open []net.Conn
}

// StartProxy starts a proxy for a server. It calls Freeze after limit bytes from clients, unless limit is 0. Its buffer
// for data from clients is small, so that a client's write to a frozen proxy soon blocks.
func StartProxy(to string, limit int64) (*Proxy, error) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) })
	}}
	listener, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, to: to, frozen: make(chan struct{}), closed: make(chan struct{}), left: limit}
	if limit == 0 {
		p.left = -1
	}
	p.work.Go(p.acceptConns)
	return p, nil
}

// Port returns the port that the proxy listens on.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Freeze makes the proxy forward nothing any more. Connections stay open.
func (p *Proxy) Freeze() { p.freeze.Do(func() { close(p.frozen) }) }

// Frozen returns a channel that is closed by Freeze.
func (p *Proxy) Frozen() <-chan struct{} { return p.frozen }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.end.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.closed)
		p.listener.Close()
		for _, conn := range p.open {
			conn.Close()
		}
	})
	p.work.Wait()
}

func (p *Proxy) acceptConns() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		if p.register(client, server) {
			p.work.Go(func() { p.forward(server, client, true) })
			p.work.Go(func() { p.forward(client, server, false) })
		}
	}
}

// register adds connections, so that Close closes them. After Close it closes them and returns false.
func (p *Proxy) register(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		for _, conn := range conns {
			conn.Close()
		}
		return false
	default:
		p.open = append(p.open, conns...)
		return true
	}
}

// forward copies one direction until the connection or the proxy ends.
func (p *Proxy) forward(to, from net.Conn, counted bool) {
	defer to.Close()
	data := make([]byte, 16<<10)
	for {
		n, err := from.Read(data)
		if counted {
			p.count(n)
		}
		select {
		case <-p.frozen:
			<-p.closed
			return
		default:
		}
		if _, writeErr := to.Write(data[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// count calls Freeze when the limit is reached.
func (p *Proxy) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < 0 {
		return
	}
	if p.left = max(0, p.left-int64(n)); p.left == 0 {
		p.Freeze()
	}
}
