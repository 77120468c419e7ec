package sshtest

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// faultyConn is a server's connection with the faults of Options and Freeze.
type faultyConn struct {
	net.Conn
	server *Server
	sent   atomic.Int64
}

func (f *faultyConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.waitForThaw() // data that was received during Freeze is returned after Thaw
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

// waitForThaw blocks while the server is frozen.
func (f *faultyConn) waitForThaw() {
	if wait := f.server.frozen.Load(); wait != nil {
		<-*wait
	}
}
