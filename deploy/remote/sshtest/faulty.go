package sshtest

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// faulty is a connection with the faults that the server's options ask for.
type faultyConn struct {
	net.Conn
	server *Server
	sent   atomic.Int64
}

func (f *faultyConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.waitForThaw() // what came in while frozen is not seen
	return n, err
}

func (f *faultyConn) Write(p []byte) (int, error) {
	f.waitForThaw()
	if f.server.opts.Latency > 0 {
		time.Sleep(f.server.opts.Latency)
	}
	if limit := f.server.opts.DropAfter; limit > 0 && f.sent.Add(int64(len(p))) > limit {
		f.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return f.Conn.Write(p)
}

func (f *faultyConn) waitForThaw() {
	if wait := f.server.frozen.Load(); wait != nil {
		<-*wait
	}
}
