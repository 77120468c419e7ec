package sshtest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

func (s *Server) forwardUnix(ctx context.Context, offered ssh.NewChannel) {
	var body struct {
		Path, Reserved0 string
		Reserved1       uint32
	}
	if err := ssh.Unmarshal(offered.ExtraData(), &body); err != nil {
		offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	s.forwardChannel(ctx, offered, "unix", body.Path)
}

func (s *Server) forwardTCP(ctx context.Context, offered ssh.NewChannel) {
	var body struct {
		Host     string
		Port     uint32
		FromHost string
		FromPort uint32
	}
	if err := ssh.Unmarshal(offered.ExtraData(), &body); err != nil {
		offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	s.forwardChannel(ctx, offered, "tcp", net.JoinHostPort(body.Host, strconv.Itoa(int(body.Port))))
}

func (s *Server) forwardChannel(ctx context.Context, offered ssh.NewChannel, network, addr string) {
	if s.opts.ForbidForwarding {
		// For a forbidden TCP connection, sshd sends the reason "prohibited". For a forbidden socket, it sends another
		// reason, and the client then runs a command that inspects the socket. A Handler of a test cannot answer this
		// command. So if there is a Handler, the server sends "prohibited" for a socket, too.
		reason := ssh.Prohibited
		if network == "unix" && !s.printMarks {
			reason = ssh.ConnectionFailed
		}
		offered.Reject(reason, "open failed")
		return
	}
	far, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	defer far.Close()
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	stop := context.AfterFunc(ctx, func() {
		far.Close()
		channel.Close()
	})
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		io.Copy(far, channel)
		far.(interface{ CloseWrite() error }).CloseWrite()
	})
	work.Go(func() {
		io.Copy(channel, far)
		channel.CloseWrite()
	})
	work.Wait()
}
