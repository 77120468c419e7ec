package daemon_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

func open(t *testing.T, s *daemontest.Store) *daemon.Conn {
	t.Helper()
	here, there := net.Pipe()
	go s.Serve(there)
	c, err := daemon.Open(here, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var info = daemon.PathInfo{
	Path: "/nix/store/b", Deriver: "/nix/store/b.drv", NarHash: strings.Repeat("0a", 32), References: []string{"/nix/store/a", "/nix/store/b"},
	RegistrationTime: 1 << 31, NarSize: 11, Signatures: []string{"key:1", "key:2"}, CA: "fixed:r:sha256:x",
}

// All operations have the same results with every version of the protocol.
func TestVersions(t *testing.T) {
	for _, minor := range []uint64{32, 33, 34, 35, 38, 99} {
		s := &daemontest.Store{Version: 1<<8 | minor, Infos: []daemon.PathInfo{info}, Substitutes: []string{"/nix/store/c"}}
		s.SetValid("/nix/store/a")
		c := open(t, s)
		var log []string
		c.Fetch = func(path string, done bool) { log = append(log, fmt.Sprintf("%s %t", path, done)) }
		infos, err := c.QueryPathInfos([]string{"/nix/store/none", info.Path, "/nix/store/none"})
		if err != nil || len(infos) != 1 {
			t.Fatal(minor, infos, err)
		}
		if got := *infos[0]; got.Deriver != info.Deriver || got.NarHash != info.NarHash || got.RegistrationTime != info.RegistrationTime || got.NarSize != 11 ||
			got.CA != info.CA || !slices.Equal(got.References, info.References) || !slices.Equal(got.Signatures, info.Signatures) {
			t.Errorf("%d: %+v", minor, got)
		}
		file := writeFile(t, "hello world")
		if err := c.AddPaths([]*daemon.PathInfo{file}, func(string) {}, func(int) {}, func() {}); err != nil {
			t.Fatal(minor, err)
		}
		if got := s.NAR(file.Path); !bytes.Contains(got, []byte("hello world")) {
			t.Errorf("%d: NAR %q", minor, got)
		}
		valid, err := c.QueryValidPaths([]string{"/nix/store/a", file.Path, "/nix/store/c"}, false)
		if err != nil || !slices.Equal(valid, []string{"/nix/store/a", file.Path}) {
			t.Error(minor, valid, err)
		}
		valid, err = c.QueryValidPaths([]string{"/nix/store/c"}, true)
		if err != nil || len(valid) != 1 || !slices.Equal(log, []string{"/nix/store/c false", "/nix/store/c true"}) {
			t.Error(minor, valid, log, err)
		}
	}
}

func TestUnsupported(t *testing.T) {
	for name, reply := range map[string]string{
		"version 1.31 of": "\x6f\x69\x78\x64\x00\x00\x00\x00\x1f\x01\x00\x00\x00\x00\x00\x00",
		"version 2.0 of":  "\x6f\x69\x78\x64\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00",
		"not a Nix":       "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		here, there := net.Pipe()
		go func() {
			there.Read(make([]byte, 8))
			io.WriteString(there, reply)
			there.Close()
		}()
		_, err := daemon.Open(here, 64<<20)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The daemon's error is returned, and the paths before it are reported.
func TestErrors(t *testing.T) {
	first, second, third := writeFile(t, "1"), writeFile(t, "2"), writeFile(t, "3")
	s := &daemontest.Store{Adding: func(path string) error {
		if path == second.Path {
			return errors.New("No space left on device")
		}
		return nil
	}}
	added := 0
	err := open(t, s).AddPaths([]*daemon.PathInfo{first, second, third}, func(string) {}, func(int) {}, func() { added++ })
	var reported *daemon.Error
	if !errors.As(err, &reported) || reported.Message != "No space left on device" || added != 1 {
		t.Errorf("%v, added %d", err, added)
	}
}

// writeFile makes a file, and its record.
func writeFile(t *testing.T, text string) *daemon.PathInfo {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return &daemon.PathInfo{Path: path, NarHash: info.NarHash, NarSize: uint64(112 + (len(text)+7)/8*8), References: []string{path}}
}

// A user other than root reaches the daemon through a process that copies both directions in one thread.
func TestManyQueriesThroughOneThread(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &daemontest.Store{Infos: []daemon.PathInfo{info}}
	go func() {
		if conn, err := listener.Accept(); err == nil {
			s.Serve(conn)
		}
	}()
	socket, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	go copyInOneThread(there, socket)
	c, err := daemon.Open(here, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(20*time.Second, func() { c.Close() })
	defer c.Close()
	defer stuck.Stop()
	paths := []string{info.Path}
	for i := range 5000 {
		paths = append(paths, fmt.Sprintf("/nix/store/%032d-path", i))
	}
	paths = append(paths, info.Path)
	infos, err := c.QueryPathInfos(paths)
	if err != nil || len(infos) != 2 {
		t.Errorf("%d records of %d, %v", len(infos), len(paths), err)
	}
	if valid, err := c.QueryValidPaths(paths, false); err != nil || len(valid) > 0 {
		t.Errorf("%d valid paths, %v", len(valid), err)
	}
}

// copyInOneThread copies data between two connections. While a write blocks, it copies nothing in the other direction.
func copyInOneThread(a, b net.Conn) {
	type block struct {
		to   net.Conn
		data []byte
	}
	blocks := make(chan block)
	read := func(from, to net.Conn) {
		for {
			data := make([]byte, 4096)
			n, err := from.Read(data)
			blocks <- block{to, data[:n]}
			if err != nil {
				blocks <- block{}
				return
			}
		}
	}
	go read(a, b)
	go read(b, a)
	for ended := 0; ended < 2; {
		next := <-blocks
		if next.to == nil {
			a.Close()
			b.Close()
			ended++
			continue
		}
		next.to.Write(next.data)
	}
}

// recorded keeps what was read.
type recorded struct {
	net.Conn
	data *bytes.Buffer
}

func (r recorded) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.data.Write(p[:n])
	return n, err
}

// replay has the replies of a daemon, and accepts any request.
type replay struct{ io.Reader }

func (replay) Write(p []byte) (int, error) { return len(p), nil }
func (replay) Close() error                { return nil }

// talk performs several operations, and returns the first error.
func talk(conn io.ReadWriteCloser) error {
	c, err := daemon.Open(conn, 1<<20)
	if err != nil {
		return err
	}
	if _, err := c.QueryPathInfos([]string{info.Path}); err != nil {
		return err
	}
	if _, err := c.QueryValidPaths([]string{info.Path, "/nix/store/c"}, true); err != nil {
		return err
	}
	_, err = c.QueryPathInfos([]string{info.Path})
	return err
}

// recordReplies returns the replies of a daemon to the operations of talk.
func recordReplies(t testing.TB) []byte {
	s := &daemontest.Store{Infos: []daemon.PathInfo{info}, Substitutes: []string{"/nix/store/c"}}
	here, there := net.Pipe()
	go s.Serve(there)
	var data bytes.Buffer
	if err := talk(recorded{here, &data}); err != nil {
		t.Fatal(err)
	}
	here.Close()
	return data.Bytes()
}

// Any replies of a daemon end in an error or a result, with little memory.
func FuzzReplies(f *testing.F) {
	whole := recordReplies(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(slices.Concat(whole[:len(whole)/2], bytes.Repeat([]byte{0xff}, 100)))
	f.Fuzz(func(t *testing.T, replies []byte) {
		_ = talk(replay{bytes.NewReader(replies)})
	})
}

// A daemon cannot fill the memory: neither with a list nor with many short ones, nor with log messages.
func TestEndlessReplies(t *testing.T) {
	whole := recordReplies(t)
	at := bytes.Index(whole, []byte("/nix/store/a")) - 16 // the references of the first path
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	text := func(s string) []byte { return append(number(uint64(len(s))), s...) }
	handshake := whole[:bytes.Index(whole, number(0x616c7473))]
	for name, test := range map[string]struct{ begin, repeated []byte }{
		"references":                  {slices.Concat(whole[:at], number(1<<60)), text("/nix/store/aaaaa")},
		"empty references":            {slices.Concat(whole[:at], number(1<<60)), number(0)},
		"a long string":               {slices.Concat(whole[:at], number(1), number(1<<62)), number(0)},
		"copies":                      {handshake, nil},
		"fields of a copy":            {slices.Concat(handshake, number(0x53545254), number(1), number(3), number(100), text(""), number(1<<60)), number(0)},
		"traces of an error":          {slices.Concat(handshake, number(0x63787470), text("Error   "), number(0), text("Error   "), text("message "), number(0), number(1<<60)), slices.Concat(number(0), text("12345678"))},
		"log messages without an end": {handshake, slices.Concat(number(0x6f6c6d67), text("12345678"))},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			id, sent := uint64(0), int64(0)
			more := func(p []byte) (int, error) {
				one := test.repeated
				if one == nil { // each copy has another number
					id++
					one = slices.Concat(number(0x53545254), number(id), number(3), number(100), text(""), number(1), number(1), text("12345678"), number(0))
				}
				n := 0
				for n+len(one) <= len(p) {
					n += copy(p[n:], one)
					if test.repeated == nil {
						break
					}
				}
				if sent += int64(n); sent > 32<<20 {
					return 0, io.EOF
				}
				return n, nil
			}
			err := talk(replay{io.MultiReader(bytes.NewReader(test.begin), readerFunc(more))})
			runtime.ReadMemStats(&after)
			t.Logf("%d MiB were read: %v", sent>>20, err)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); err == nil || sent > 16<<20 && !strings.HasPrefix(name, "log messages") || grown > 32<<20 {
				t.Errorf("%d MiB were read, the heap has grown by %d MiB, %v", sent>>20, grown>>20, err)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A reply that ends early, at any byte, is an error. Replies with wrong bytes end, too.
func TestTruncatedAndWrongReplies(t *testing.T) {
	data := recordReplies(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range len(data) {
			if err := talk(replay{bytes.NewReader(data[:n])}); err == nil {
				t.Errorf("no error after %d of %d bytes", n, len(data))
			}
			wrong := bytes.Clone(data)
			wrong[n] ^= 0xff
			talk(replay{bytes.NewReader(wrong)})
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a reply is read endlessly")
	}
}
