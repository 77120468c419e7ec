package sshtest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

// forward connects a channel to the unix socket or the TCP address that the client has named.
func (s *Server) forward(ctx context.Context, offered ssh.NewChannel) {
	network, addr := "unix", ""
	var socket struct {
		Path, Reserved0 string
		Reserved1       uint32
	}
	var tcp struct {
		Host     string
		Port     uint32
		FromHost string
		FromPort uint32
	}
	var err error
	if offered.ChannelType() == "direct-tcpip" {
		err = ssh.Unmarshal(offered.ExtraData(), &tcp)
		network, addr = "tcp", net.JoinHostPort(tcp.Host, strconv.Itoa(int(tcp.Port)))
	} else {
		err = ssh.Unmarshal(offered.ExtraData(), &socket)
		addr = socket.Path
	}
	if s.opts.ForbidForwarding {
		offered.Reject(ssh.Prohibited, "open failed")
		return
	}
	var far net.Conn
	if err == nil {
		far, err = (&net.Dialer{}).DialContext(ctx, network, addr)
	}
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
