package remote_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"

	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// TestMain lets the test binary stand in for a program of the proxy tests.
func TestMain(m *testing.M) {
	if addr := os.Getenv("NIXBENCH_TEST_NETCAT"); addr != "" {
		netcat(addr)
		return
	}
	os.Exit(m.Run())
}

// key is a private key with its file.
type key struct {
	file   string
	signer ssh.Signer
}

func newKey(t testing.TB) key {
	t.Helper()
	_, private, err := generateKey()
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return key{file, signer}
}

// lockedKey is an encrypted key. To make one is slow, so there is only one.
var lockedKey = sync.OnceValue(func() []byte {
	_, private, err := generateKey()
	if err != nil {
		panic(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "test", []byte("open sesame"))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(block)
})

// newLockedKey returns a copy of lockedKey, for a server to authorize.
func newLockedKey(t testing.TB) key {
	t.Helper()
	var locked *ssh.PassphraseMissingError
	if _, err := ssh.ParsePrivateKey(lockedKey()); !errors.As(err, &locked) {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(file, lockedKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	return key{file, publicOnly{locked.PublicKey}}
}

// publicOnly stands for a key that cannot sign.
type publicOnly struct{ key ssh.PublicKey }

func (p publicOnly) PublicKey() ssh.PublicKey { return p.key }

func (p publicOnly) Sign(io.Reader, []byte) (*ssh.Signature, error) {
	return nil, errors.New("locked")
}

func authorized(k ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

// want says what server a test needs.
type want struct {
	hostKey          key
	user             key // may log in
	forbidForwarding bool
	maxSessions      int
	freezeAfter      int64  // bytes (sshtest only)
	userCA           string // a line for authorized_keys (sshd only)
	sshdConfig       string // more lines (sshd only)
	login            string // "": the current user (sshd only)
}

// server is a running server of either kind.
type server struct {
	want
	port    int
	login   string
	freeze  func()
	thaw    func()
	drop    func() // ends connections, as a crash would
	stop    func()
	restart func() // after stop, on the same port with the same keys
	local   bool   // there is no server
	frozen  <-chan struct{}
}

// kind is a kind of server that must pass the contract.
type kind func(t testing.TB, w want) *server

func (k kind) start(t testing.TB, w want) *server {
	t.Helper()
	if w.hostKey.signer == nil {
		w.hostKey = newKey(t)
	}
	if w.user.signer == nil {
		w.user = newKey(t)
	}
	return k(t, w)
}

func currentUser(t testing.TB) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// target pins the server's key, as for a machine that we booted.
func (s *server) target() sshconfig.Target {
	return sshconfig.Target{
		Name: "node-1", Host: "127.0.0.1", Port: &s.port, User: &s.login,
		IdentityFiles: []string{s.user.file}, HostKeys: []string{authorized(s.hostKey.signer.PublicKey())},
	}
}

func (s *server) config(t testing.TB) sshconfig.Config {
	t.Helper()
	if s.local {
		return sshconfig.Config{Node: "node-1", Local: true, User: currentUser(t)}
	}
	cfg, err := sshconfig.Resolve(t.Context(), s.target()) // it does not run ssh, because the target is complete
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// unpinned is for tests of known_hosts files.
func (s *server) unpinned(t testing.TB, lines ...string) sshconfig.Config {
	t.Helper()
	cfg := s.config(t)
	cfg.HostKeys = nil
	cfg.KnownHosts = []string{filepath.Join(t.TempDir(), "ssh", "known_hosts")}
	if len(lines) > 0 {
		if err := os.MkdirAll(filepath.Dir(cfg.KnownHosts[0]), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cfg.KnownHosts[0], []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func (s *server) dial(t testing.TB) *remote.Conn {
	t.Helper()
	return dial(t, s.config(t), remote.Options{})
}

func dial(t testing.TB, cfg sshconfig.Config, opts remote.Options) *remote.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := remote.Dial(ctx, cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// thisMachine needs no server.
func thisMachine(testing.TB, want) *server { return &server{local: true} }

// inProcess starts sshtest's server.
func inProcess(t testing.TB, w want) *server {
	t.Helper()
	s := &server{want: w, login: currentUser(t), port: reservePort(t)}
	var running *sshtest.Server
	s.restart = func() {
		var err error
		running, err = sshtest.Start(sshtest.Options{
			Port:             s.port,
			HostKey:          w.hostKey.signer,
			AuthorizedKey:    w.user.signer.PublicKey(),
			ForbidForwarding: w.forbidForwarding,
			MaxSessions:      w.maxSessions,
			FreezeAfter:      w.freezeAfter,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	s.frozen = running.Frozen()
	s.freeze = func() { running.Freeze() }
	s.thaw = func() { running.Thaw() }
	s.drop = func() { running.Drop() }
	s.stop = func() { running.Close() }
	t.Cleanup(func() { s.stop() })
	return s
}

// watchedSSHD runs sshd, and ends it when stdin ends: no sshd may outlive a test
// that was killed.
const watchedSSHD = `"$@" </dev/null & sshd=$!; cat >/dev/null; kill -9 $sshd`

// realSSHD starts OpenSSH's server as the current user.
func realSSHD(t testing.TB, w want) *server {
	t.Helper()
	program := findSSHD(t)
	s := &server{want: w, login: w.login, port: reservePort(t)}
	if s.login == "" {
		s.login = currentUser(t)
	}
	dir := t.TempDir()
	if w.login != "" { // sshd reads the keys as that user
		os.Chmod(filepath.Dir(dir), 0o755)
	}
	keys := filepath.Join(dir, "authorized_keys")
	if err := os.WriteFile(keys, []byte(w.userCA+authorized(w.user.signer.PublicKey())+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	yes := map[bool]string{true: "no", false: "yes"}[w.forbidForwarding]
	limit := w.maxSessions
	if limit == 0 {
		limit = 10 // the default
	}
	config := filepath.Join(dir, "sshd_config")
	// The home folder is not the user's: bash would read its .bashrc, whose
	// programs a test may end half-way.
	text := fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s
PidFile none
AuthorizedKeysFile %s
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
AllowStreamLocalForwarding %s
AllowTcpForwarding %s
MaxSessions %d
MaxStartups 100
SetEnv HOME=%s
%s
`, s.port, w.hostKey.file, keys, yes, yes, limit, dir, w.sshdConfig)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	s.restart = func() {
		cmd = exec.Command("sh", "-c", watchedSSHD, "sh", program, "-D", "-e", "-f", config)
		log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stderr = log
		// Held open as long as this process lives.
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitForPort(t, s.port, filepath.Join(dir, "log"))
	}
	signal := func(sig syscall.Signal, pids ...int) {
		for _, pid := range pids {
			syscall.Kill(pid, sig)
		}
	}
	s.restart()
	s.freeze = func() { signal(syscall.SIGSTOP, sessions(cmd.Process.Pid)...) }
	s.thaw = func() { signal(syscall.SIGCONT, sessions(cmd.Process.Pid)...) }
	s.drop = func() { signal(syscall.SIGKILL, sessions(cmd.Process.Pid)...) }
	s.stop = func() {
		if cmd.ProcessState == nil {
			all := append([]int{cmd.Process.Pid}, descendants(cmd.Process.Pid)...)
			slices.Reverse(all)
			signal(syscall.SIGKILL, all...)
			cmd.Wait()
		}
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func findSSHD(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/sshd")
	}
	if err != nil {
		fixture.Require(t, "sshd") // without it, the in-process server alone is held to the contract
	}
	if os.Getuid() == 0 { // for privilege separation; a boot script makes it normally
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return program
}

// descendants lists the processes below pid.
func descendants(pid int) []int {
	var all []int
	for _, child := range children(pid) {
		all = append(append(all, child), descendants(child)...)
	}
	return all
}

// sessions lists the processes that carry connections, and what they run: all
// below the listener, which is a child of the watcher.
func sessions(watcher int) []int {
	var all []int
	for _, listener := range children(watcher) {
		all = append(all, descendants(listener)...)
	}
	return all
}

func children(pid int) []int {
	var all []int
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(word); err == nil {
			all = append(all, child)
		}
	}
	return all
}

func waitForPort(t testing.TB, port int, log string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			conn.Close()
			return
		}
	}
	text, _ := os.ReadFile(log)
	t.Fatalf("sshd does not listen: %s", text)
}
