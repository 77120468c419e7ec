// Package sshtest is an SSH server inside the test's process. The server runs
// commands with sh or passes them to a function, forwards unix sockets and TCP
// connections, and can be configured to be slow, silent or strict. It listens on
// loopback only.
//
// The tests of package remote that run with a real sshd also pass with this server.
package sshtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
)

// Options configure a server. The zero value accepts every key, runs commands with sh
// and allows all forwarding.
type Options struct {
	Port          int           // on 127.0.0.1; 0: a free port
	HostKey       ssh.Signer    // nil: a new ed25519 key
	AuthorizedKey ssh.PublicKey // nil: every key is accepted
	Handler       Handler       // nil: sh runs the line
	Env           []string      // environment of sh; nil: the environment of the test's process

	RepeatMarks      bool  // print each mark of a command several times, as a compromised node could do; needs Handler
	ForbidForwarding bool  // refuse unix sockets and TCP connections
	MaxSessions      int   // 0: no limit
	DropAfter        int64 // close a connection before the server sends more bytes than this on it; 0: no limit
	FreezeAfter      int64 // call Freeze when clients have sent this number of bytes; 0: no limit
}

type Server struct {
	opts       Options
	config     *ssh.ServerConfig
	listener   net.Listener
	handshakes atomic.Int64
	commands   atomic.Int64
	printMarks bool // print the announcements of a command, because Handler does not run its scripts
	frozen     atomic.Pointer[chan struct{}]
	froze      chan struct{} // closed by the first Freeze
	freeze     sync.Once
	received   atomic.Int64 // bytes from clients

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
	work   sync.WaitGroup
}

func Start(opts Options) (_ *Server, err error) {
	printMarks := opts.Handler != nil
	if opts.Handler == nil {
		opts.Handler = shellHandler(opts.Env)
	}
	if opts.HostKey == nil {
		if opts.HostKey, err = ssh.ParsePrivateKey(GeneratePrivateKey()); err != nil {
			return nil, err
		}
	}
	s := &Server{opts: opts, printMarks: printMarks, open: map[net.Conn]bool{}, froze: make(chan struct{})}
	s.config = &ssh.ServerConfig{PublicKeyCallback: s.authorize}
	s.config.AddHostKey(opts.HostKey)
	if s.listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", opts.Port)); err == nil {
		s.work.Go(s.acceptConns)
	}
	return s, err
}

// GeneratePrivateKey generates an ed25519 key and returns it as PEM, for a file of a client's IdentityFiles.
func GeneratePrivateKey() []byte {
	_, private, _ := ed25519.GenerateKey(rand.Reader) // crypto/rand does not fail
	block, err := ssh.MarshalPrivateKey(private, "sshtest")
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(block)
}

func (s *Server) authorize(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if allowed := s.opts.AuthorizedKey; allowed != nil && !bytes.Equal(allowed.Marshal(), key.Marshal()) {
		return nil, errors.New("key not authorized")
	}
	return nil, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// HostKey returns the host key, in the format of an authorized_keys file.
func (s *Server) HostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.Key())))
}

func (s *Server) Key() ssh.PublicKey { return s.opts.HostKey.PublicKey() }

// KnownHostsLine returns the line of a known_hosts file that contains the server's host key.
func (s *Server) KnownHostsLine() string {
	return fmt.Sprintf("[127.0.0.1]:%d %s", s.Port(), s.HostKey())
}

// Handshakes returns the number of logins so far.
func (s *Server) Handshakes() int { return int(s.handshakes.Load()) }

// Commands returns the number of commands that were started so far.
func (s *Server) Commands() int { return int(s.commands.Load()) }

// Freeze makes the server silent: connections stay open, and the server neither
// reads nor writes until Thaw.
func (s *Server) Freeze() {
	wait := make(chan struct{})
	if s.frozen.CompareAndSwap(nil, &wait) {
		s.freeze.Do(func() { close(s.froze) })
	}
}

// Frozen returns a channel that is closed by Freeze.
func (s *Server) Frozen() <-chan struct{} { return s.froze }

// Thaw ends Freeze.
func (s *Server) Thaw() {
	if wait := s.frozen.Swap(nil); wait != nil {
		close(*wait)
	}
}

// Drop closes all connections without a message to the clients, like a crash.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.Close()
	}
}

// Close stops the server and ends its commands.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.listener.Close()
	s.Drop()
	s.Thaw()
	s.work.Wait()
	return err
}

func (s *Server) acceptConns() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		conn := &faultyConn{Conn: raw, server: s}
		s.mu.Lock()
		if s.closed {
			raw.Close()
		}
		s.open[conn] = true
		s.mu.Unlock()
		s.work.Go(func() {
			s.serveConn(conn)
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
			conn.Close()
		})
	}
}

// serveConn serves one connection. When the connection ends, it ends the connection's commands.
func (s *Server) serveConn(conn net.Conn) {
	login, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return
	}
	s.handshakes.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { ssh.DiscardRequests(requests) }) // answers a keepalive with a failure, as sshd does
	var sessions atomic.Int64
	for channel := range channels {
		switch channel.ChannelType() {
		case "session":
			work.Go(func() {
				defer sessions.Add(-1)
				if n := sessions.Add(1); s.opts.MaxSessions > 0 && n > int64(s.opts.MaxSessions) {
					channel.Reject(ssh.ConnectionFailed, "open failed")
					return
				}
				s.serveSession(ctx, login.User(), channel)
			})
		case "direct-streamlocal@openssh.com", "direct-tcpip":
			work.Go(func() { s.forward(ctx, channel) })
		default:
			channel.Reject(ssh.UnknownChannelType, channel.ChannelType())
		}
	}
}
