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
	var to struct { // the beginning of the data is the same for unix sockets, for which Port is without meaning
		Name string
		Port uint32
		Rest []byte `ssh:"rest"`
	}
	err := ssh.Unmarshal(offered.ExtraData(), &to)
	network, addr := "unix", to.Name
	if offered.ChannelType() == "direct-tcpip" {
		network, addr = "tcp", net.JoinHostPort(to.Name, strconv.Itoa(int(to.Port)))
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
