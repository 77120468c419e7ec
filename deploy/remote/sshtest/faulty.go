package sshtest

import (
	"io"
	"net"
	"sync/atomic"
)

// faultyConn is a connection of the server that simulates faults: Freeze, and DropAfter and FreezeAfter of Options.
type faultyConn struct {
	net.Conn
	server *Server
	sent   atomic.Int64
}

func (f *faultyConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	limit, received := f.server.opts.FreezeAfter, f.server.received.Add(int64(n))
	if received >= limit && received-int64(n) < limit { // this read has reached the limit
		f.server.Freeze()
	}
	f.waitForThaw() // data that was received during Freeze is returned after Thaw
	return n, err
}

func (f *faultyConn) Write(p []byte) (int, error) {
	f.waitForThaw()
	if limit := f.server.opts.DropAfter; limit > 0 && f.sent.Add(int64(len(p))) > limit {
		f.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return f.Conn.Write(p)
}

// waitForThaw blocks while the server is frozen.
func (f *faultyConn) waitForThaw() {
	if wait := f.server.frozen.Load(); wait != nil {
		<-*wait
	}
}
