package remote_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// reservePort picks a free port and keeps it until the test ends, also while no server listens
// on it. The port is bound by a socket that never listens. A server that sets SO_REUSEADDR, as
// sshd and Go's net package do, can still listen on it; the kernel does not assign the port to
// a program that requests any free port.
func reservePort(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return addr.(*syscall.SockaddrInet4).Port
}

// Between two starts of a server on a reserved port, another program cannot get the port.
func TestReservedPort(t *testing.T) {
	port := reservePort(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	plain := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}), err)
	}}
	for range 2 {
		if l, err := plain.Listen(context.Background(), "tcp", addr); err == nil {
			l.Close()
			t.Errorf("port %d was given to a program that the reservation is not for", port)
		}
		l, err := net.Listen("tcp", addr) // with SO_REUSEADDR, as a server does
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
