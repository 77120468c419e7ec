package secrets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// node is a folder that acts as a node's root, and an SSH server that runs the real script
// with it.
type node struct {
	*Uploader
	dir    string
	server *sshtest.Server
	host   *remote.Host

	mu     sync.Mutex
	events []event.Event
}

func start(t testing.TB, opts sshtest.Options) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a key's folder must belong to root")
	}
	server, err := sshtest.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	n := &node{dir: t.TempDir(), server: server, host: connect(t, server)}
	n.Uploader = &Uploader{root: n.dir, runner: noRunner(t), Send: func(e event.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, e)
	}}
	return n
}

func connect(t testing.TB, server *sshtest.Server) *remote.Host {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	port, login := server.Port(), "root"
	cfg, err := sshconfig.Resolve(t.Context(), sshconfig.Target{Name: "web-1", Host: "127.0.0.1", Port: &port, User: &login,
		IdentityFiles: []string{key}, HostKeys: []string{server.HostKey()}})
	if err != nil {
		t.Fatal(err)
	}
	host := remote.NewHost(cfg, remote.Options{})
	t.Cleanup(func() { host.Close() })
	return host
}

func noRunner(t testing.TB) func(context.Context, ...string) ([]byte, error) {
	return func(_ context.Context, argv ...string) ([]byte, error) {
		t.Errorf("unexpected call: %q", argv)
		return nil, fmt.Errorf("unexpected call")
	}
}

// me returns the user and group that run the tests, which chown accepts.
func me(t testing.TB) (name, group string) {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		return u.Username, u.Gid
	}
	return u.Username, g.Name
}

func secret(text string) *nixeval.Secret {
	data, _ := json.Marshal(text)
	s := new(nixeval.Secret)
	if err := json.Unmarshal(data, s); err != nil {
		panic(err)
	}
	return s
}

// keys returns the keys of a hive; the test may change each.
type keys map[string]nixeval.Key

func (n *node) key(t testing.TB, name, text string, change ...func(*nixeval.Key)) nixeval.Key {
	t.Helper()
	u, g := me(t)
	k := nixeval.Key{Name: name, Text: secret(text), DestDir: filepath.Join(n.dir, "run/keys"),
		User: u, Group: g, Permissions: "0600", UploadAt: preActivation}
	for _, c := range change {
		c(&k)
	}
	k.Path = k.DestDir + "/" + k.Name
	return k
}

func (n *node) load(t testing.TB, ks keys, when When) Set {
	t.Helper()
	set, err := n.Load(t.Context(), "web-1", nixeval.Deployment{Keys: ks}, when)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (n *node) upload(t testing.TB, ks keys, when When) Result {
	t.Helper()
	result, err := n.Upload(t.Context(), n.host, n.load(t, ks, when))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// files lists the files on the node, with modes and contents.
func (n *node) files(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.Walk(filepath.Join(n.dir, "run"), func(path string, info os.FileInfo, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found[strings.TrimPrefix(path, n.dir+"/run/")] = fmt.Sprintf("%o %s", info.Mode().Perm(), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// recorder keeps a copy of what was read from a reader.
type recorder struct {
	io.Reader
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(p[:n])
	return n, err
}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}
