package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func loopback(t *testing.T) *Host {
	h, err := Loopback("here", nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestLoopbackRuns(t *testing.T) {
	h := loopback(t)
	big := strings.Repeat("x", 1<<20)
	var out, diag bytes.Buffer
	err := h.Run(t.Context(), Cmd{Argv: []string{"sh", "-c", `cat; echo "$1" >&2; exit 3`, "sh", "it's"}, Stdin: strings.NewReader(big), Stdout: &out, Stderr: &diag})
	var failed *RunError
	if !errors.As(err, &failed) || failed.ExitStatus != 3 || out.String() != big || diag.String() != "it's\n" {
		t.Errorf("got %v, %d bytes, %q", err, out.Len(), diag.String())
	}
	err = h.Run(t.Context(), Cmd{Argv: []string{"sh", "-c", "kill -TERM $$"}})
	if !errors.As(err, &failed) || failed.Signal != "TERM" || failed.ShellStatus() != 143 {
		t.Errorf("got %v, want the signal", err)
	}
	fresh, err := h.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := fresh.Output(t.Context(), Cmd{Argv: []string{"echo", "again"}}); err != nil || string(out) != "again\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestLoopbackCancelled(t *testing.T) {
	h := loopback(t)
	mark := filepath.Join(t.TempDir(), "alive")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := h.Run(ctx, Cmd{Argv: []string{"sh", "-c", `sleep 2; touch "$1"`, "sh", mark}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
		t.Errorf("got %v after %v", err, time.Since(begin))
	}
	time.Sleep(2500*time.Millisecond - time.Since(begin))
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command went on")
	}
}

func TestLoopbackForwards(t *testing.T) {
	h := loopback(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	conn, err := h.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := conn.DialUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "echo")
	c.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "echo" {
		t.Errorf("got %q, %v", got, err)
	}
}
