package closure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

// localStore is a store of n paths with files, of which each refers to the one before. The last one is the system.
type localStore struct {
	t      testing.TB
	paths  []string
	infos  []daemon.PathInfo
	opened int // processes that were started for it
}

func newLocalStore(t testing.TB, n, size int) *localStore {
	s := &localStore{t: t}
	dir := t.TempDir()
	for i := range n {
		p := filepath.Join(dir, fmt.Sprintf("%032d-path", i))
		if err := os.WriteFile(p, bytes.Repeat([]byte{byte(i)}, size), 0o644); err != nil {
			t.Fatal(err)
		}
		s.paths = append(s.paths, p)
		s.infos = append(s.infos, daemon.PathInfo{Path: p, NarSize: uint64(112 + (size+7)/8*8), NarHash: "00", References: s.paths[max(0, i-1):]})
	}
	slices.Reverse(s.infos)
	return s
}

func (s *localStore) start(_ context.Context, _ nixeval.Command) (io.ReadWriteCloser, error) {
	s.opened++
	here, there := net.Pipe()
	go (&daemontest.Store{Infos: s.infos}).Serve(there)
	return here, nil
}

func (s *localStore) system() []string { return s.paths[len(s.paths)-1:] }

func (s *localStore) copier() (*Copier, *events) {
	seen := &events{}
	return &Copier{Start: s.start, Send: seen.add, Run: func(_ context.Context, c nixeval.Command) ([]byte, error) {
		s.t.Errorf("no test expected %q here", c.Argv)
		return nil, errors.New("unexpected")
	}}, seen
}

// startDaemon starts a node with this daemon, and returns the path of the daemon's socket.
func startDaemon(t testing.TB, store *daemontest.Store, name string) (*remote.Host, string) {
	t.Helper()
	return startNode(t, store, name, sshtest.Options{})
}

func startNode(t testing.TB, store *daemontest.Store, name string, opts sshtest.Options) (*remote.Host, string) {
	socket := filepath.Join(shortDir(t), name)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go store.Serve(conn)
		}
	}()
	_, h := startServer(t, opts)
	return h, socket
}

func TestPush(t *testing.T) {
	local, node := newLocalStore(t, 6, 1_500_000), &daemontest.Store{}
	node.SetValid(local.paths[:2]...)
	c, seen := local.copier()
	h, socket := startDaemon(t, node, "s")
	c.socket = at(socket)
	missing, err := c.Missing(t.Context(), "web-1", h, local.system())
	if err != nil || missing.Paths != 4 {
		t.Fatal(missing, err)
	}
	got, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
	if want := (Stats{Paths: 4, Bytes: missing.Bytes, Closure: missing.Bytes / 4 * 6}); err != nil || got != want {
		t.Fatalf("%+v, want %+v, %v", got, want, err)
	}
	if added := node.Added(); !slices.Equal(added, local.paths[2:]) {
		t.Errorf("added %q", added) // and daemontest requires references before referrers
	}
	for i, p := range local.paths[2:] {
		if !bytes.Contains(node.NAR(p), bytes.Repeat([]byte{byte(i + 2)}, 1_500_000)) {
			t.Errorf("the NAR of %s differs", p)
		}
	}
	var logged []string
	for _, e := range seen.of(event.NodeLog) {
		logged = append(logged, e.Node+" "+e.Text)
	}
	if want := "web-1 copying path '" + local.paths[2] + "'"; len(logged) != 4 || logged[0] != want {
		t.Errorf("%q", logged)
	}
	told := seen.of(event.NodeProgress)
	if first, last := told[0], told[len(told)-1]; first.Done != 0 || int64(last.Done) != missing.Bytes || last.Text != "4 of 4 paths" {
		t.Errorf("%+v … %+v", first, last)
	}
	if m := seen.of(event.Message); len(m) > 0 {
		t.Errorf("%+v", m)
	}
	if got, err := c.Copy(t.Context(), "web-1", h, local.system()[0], ""); err != nil || got != (Stats{}) || local.opened != 1 {
		t.Errorf("again: %+v, %v, %d processes", got, err, local.opened)
	}
}

// The closure of a system is read from the local store if it is there, and otherwise from the node's.
func TestSizes(t *testing.T) {
	local := newLocalStore(t, 2, 100)
	node := &daemontest.Store{Infos: []daemon.PathInfo{
		{Path: "/nix/store/b-b", NarSize: 5, References: []string{"/nix/store/a-a", "/nix/store/b-b"}}, {Path: "/nix/store/a-a", NarSize: 7},
	}}
	c, _ := local.copier()
	h, socket := startDaemon(t, node, "s")
	c.socket = at(socket)
	size := int64(local.infos[0].NarSize)
	for path, want := range map[string]map[string]int64{
		local.paths[1]:   {local.paths[0]: size, local.paths[1]: size},
		"/nix/store/b-b": {"/nix/store/a-a": 7, "/nix/store/b-b": 5},
		"/nix/store/c-c": nil,
	} {
		got, err := c.Sizes(t.Context(), "web-1", h, path)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", path, got, err, want)
		}
	}
}

// at returns the function that gives every node this socket.
func at(socket string) func(string) string { return func(string) string { return socket } }

// Many nodes get the paths, and a stuck node stops none of them.
func TestPushToManyNodes(t *testing.T) {
	local := newLocalStore(t, 50, 2_000_000)
	c, _ := local.copier()
	stuck, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	hosts, sockets, stores := map[string]*remote.Host{}, map[string]string{}, map[string]*daemontest.Store{}
	for _, name := range []string{"stuck", "a", "b", "c", "d"} {
		stores[name] = &daemontest.Store{}
		hosts[name], sockets[name] = startDaemon(t, stores[name], "s")
	}
	stores["stuck"].Adding = func(path string) error {
		if path == local.paths[3] {
			close(stuck)
			<-release
		}
		return nil
	}
	c.socket = func(node string) string { return sockets[node] }
	ctx, cancel := context.WithCancelCause(t.Context())
	stuckEnded := make(chan error, 1)
	go func() {
		_, err := c.Copy(ctx, "stuck", hosts["stuck"], local.system()[0], "")
		stuckEnded <- err
	}()
	<-stuck
	var work sync.WaitGroup
	begin := time.Now()
	for _, name := range []string{"a", "b", "c", "d"} {
		work.Go(func() {
			_, err := c.Copy(t.Context(), name, hosts[name], local.system()[0], "")
			if n := len(stores[name].Added()); err != nil || n != 50 {
				t.Errorf("%s: %d paths, %v", name, n, err)
			}
		})
	}
	work.Wait()
	t.Logf("100 MB to four nodes beside a stuck one: %v", time.Since(begin).Round(time.Millisecond))
	if local.opened != 1 {
		t.Errorf("%d processes have read the local store", local.opened)
	}
	cancel(errTest)
	select {
	case err := <-stuckEnded:
		if !errors.Is(err, errTest) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the copy to the stuck node does not end")
	}
}

// A node whose daemon dies in the middle keeps what it has, and the next copy goes on from there.
func TestPushGoesOn(t *testing.T) {
	local, node := newLocalStore(t, 6, 1000), &daemontest.Store{}
	c, _ := local.copier()
	h, socket := startDaemon(t, node, "s")
	c.socket = at(socket)
	var dies atomic.Bool
	dies.Store(true)
	node.Adding = func(path string) error {
		if path == local.paths[4] && dies.Load() {
			return io.EOF
		}
		return nil
	}
	_, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
	want := "web-1: copy 6 paths (4 copied, the next run continues from there): the node's Nix daemon has closed the connection"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
	dies.Store(false)
	if got, err := c.Copy(t.Context(), "web-1", h, local.system()[0], ""); err != nil || got.Paths != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPushFailures(t *testing.T) {
	for name, test := range map[string]struct {
		adding, want, hint string
		untrusted, signed  bool
	}{
		"disk full":  {adding: "writing to file: \x1b[31mNo space left on device\x1b[0m", want: "(2 copied, the next run continues from there): the node's disk is full: the Nix daemon reports for ", hint: "/nix/store"},
		"other":      {adding: "the store\nis broken", want: "-path: the store\n  the store\n  is broken"},
		"untrusted":  {untrusted: true, want: "the Nix daemon does not trust root, and the paths are not signed by a key that it trusts\n  cannot add path", hint: "nix.settings.trusted-users of web-1"},
		"signatures": {untrusted: true, signed: true},
	} {
		t.Run(name, func(t *testing.T) {
			local := newLocalStore(t, 4, 1000)
			node := &daemontest.Store{Untrust: test.untrusted, Adding: func(path string) error {
				if test.adding != "" && path == local.paths[2] {
					return errors.New(test.adding)
				}
				return nil
			}}
			if test.signed {
				for i := range local.infos {
					local.infos[i].Signatures = []string{"key:signature"}
				}
			}
			c, _ := local.copier()
			h, socket := startDaemon(t, node, "s")
			c.socket = at(socket)
			_, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) || !strings.Contains(e.Hint(), test.hint) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v\nhint: %s", err, e.Hint())
			}
		})
	}
}

// A path that differs from its record, or is gone, is an error.
func TestPushOfABrokenPath(t *testing.T) {
	local, node := newLocalStore(t, 4, 1000), &daemontest.Store{}
	c, _ := local.copier()
	h, socket := startDaemon(t, node, "s")
	c.socket = at(socket)
	if err := os.Truncate(local.paths[1], 900); err != nil {
		t.Fatal(err)
	}
	_, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
	if err == nil || !strings.Contains(err.Error(), "the Nix daemon reports for "+local.paths[1]+": size mismatch") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(local.paths[1]); err != nil {
		t.Fatal(err)
	}
	_, err = c.Copy(t.Context(), "web-1", h, local.system()[0], "")
	if err == nil || !strings.Contains(err.Error(), "read "+local.paths[1]+" from the local store: ") {
		t.Errorf("%v", err)
	}
	if added := node.Added(); len(added) > 1 {
		t.Errorf("%q", added)
	}
}

// A path that the node's caches have is not sent, and the node is not asked to fetch unless it may.
func TestPushSubstitutes(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		local := newLocalStore(t, 4, 1000)
		node := &daemontest.Store{Substitutes: local.paths[:3]}
		c, seen := local.copier()
		c.Substitute = allowed
		h, socket := startDaemon(t, node, "s")
		c.socket = at(socket)
		got, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
		if err != nil || got.Paths != 4 {
			t.Errorf("%+v, %v", got, err)
		}
		if sent, want := len(node.Added()), map[bool]int{true: 1, false: 4}[allowed]; sent != want {
			t.Errorf("allowed %t: %d paths were sent, want %d", allowed, sent, want)
		}
		if logged := seen.of(event.NodeLog); len(logged) != 4 {
			t.Errorf("%+v", logged)
		}
	}
}

// A path is protected over the connection that copies it. Where the folder of the links exists, the node starts one program.
func TestCopyAndProtect(t *testing.T) {
	for _, folder := range []bool{true, false} {
		local, node := newLocalStore(t, 3, 1000), &daemontest.Store{}
		system := local.system()[0]
		var argvs []string
		h, socket := startNode(t, node, "s", sshtest.Options{Handler: func(_ context.Context, e *sshtest.Exec) int {
			if got := node.Roots(); !slices.Equal(got, []string{system}) {
				t.Errorf("the link is made while %q is held", got)
			}
			argvs = append(argvs, strings.Join(e.Argv, " "))
			if e.Argv[0] == "ln" && !folder {
				return 1
			}
			return 0
		}})
		c, _ := local.copier()
		c.socket = at(socket)
		if got, err := c.Copy(t.Context(), "web-1", h, system, "wanted"); err != nil || got.Paths != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		if got, want := node.Roots(), []string{system, "/run/nixbench/gcroots/wanted"}; !slices.Equal(got, want) {
			t.Errorf("roots %q, want %q", got, want)
		}
		want := []string{"ln -sfn " + system + " /run/nixbench/gcroots/wanted"}
		if !folder {
			want = append(want, "sh -c "+linkScript+" sh /run/nixbench/gcroots wanted "+system)
		}
		if !slices.Equal(argvs, want) {
			t.Errorf("commands %q, want %q", argvs, want)
		}
	}
}

// The closures of all expected paths are read together.
func TestExpect(t *testing.T) {
	local, node := newLocalStore(t, 8, 1000), &daemontest.Store{}
	c, _ := local.copier()
	h, socket := startDaemon(t, node, "s")
	c.socket = at(socket)
	c.Expect([]string{local.paths[3], local.paths[7], "/nix/store/was-not-built"})
	for _, i := range []int{3, 7} {
		if got, err := c.Copy(t.Context(), "web-1", h, local.paths[i], ""); err != nil || got.Paths != 4 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if local.opened != 1 {
		t.Errorf("%d processes", local.opened)
	}
	if _, err := c.Copy(t.Context(), "web-1", h, "/nix/store/was-not-built", ""); err == nil || !strings.Contains(err.Error(), "/nix/store/was-not-built is not in the local store") {
		t.Errorf("%v", err)
	}
}

// A lost connection ends the copy, with the reason.
func TestPushLost(t *testing.T) {
	local := newLocalStore(t, 4, 1000)
	lose := make(chan func(), 1)
	node := &daemontest.Store{Adding: func(path string) error {
		(<-lose)()
		return nil
	}}
	_, socket := startDaemon(t, node, "s")
	s, h := startServer(t, sshtest.Options{})
	lose <- func() { s.Drop() }
	c, _ := local.copier()
	c.socket = at(socket)
	_, err := c.Copy(t.Context(), "web-1", h, local.system()[0], "")
	var e *Error
	if !errors.As(err, new(*remote.LostError)) || !errors.As(err, &e) || !strings.Contains(e.Hint(), "run again") {
		t.Errorf("%v", err)
	}
}

// The paths that a real daemon has registered are complete, and no nix copy was started.
func verifyStore(t testing.TB, socket string) {
	t.Helper()
	cmd := exec.Command("nix-store", "--verify", "--check-contents")
	cmd.Env = append(os.Environ(), "NIX_REMOTE="+filepath.Join(filepath.Dir(socket), "root"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A Nix daemon that accepts connections and does not answer, as one whose /nix is read-only, is an error.
func TestSilentDaemon(t *testing.T) {
	socket := filepath.Join(shortDir(t), "socket")
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, h := startServer(t, sshtest.Options{})
	c := &Copier{patience: 100 * time.Millisecond, socket: at(socket)}
	_, err = c.Missing(t.Context(), "node-1", h, []string{"/nix/store/x"})
	if failure.KindOf(err) != failure.Copy || !strings.Contains(err.Error(), "connect to the Nix daemon: the node's Nix daemon does not answer within 100ms") {
		t.Error(err)
	}
}
