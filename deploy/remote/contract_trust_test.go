package remote_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/hostkeys"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

func try(t *testing.T, cfg sshconfig.Config, opts remote.Options) error {
	t.Helper()
	conn, err := remote.Dial(t.Context(), cfg, opts)
	if err == nil {
		err = conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}})
		conn.Close()
	}
	return err
}

func testPinned(t *testing.T, k kind) {
	s := k.start(t, want{})
	cfg := s.config(t)
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Error(err)
	}
	target := s.target()
	target.HostKeys = []string{authorized(newKey(t).signer.PublicKey())}
	cfg, err := sshconfig.Resolve(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	err = try(t, cfg, remote.Options{AcceptNewHostKeys: true})
	var changed *hostkeys.ChangedError
	if !errors.As(err, &changed) || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("error %v", err)
	}
}

func (s *server) known(k key) string {
	return fmt.Sprintf("[127.0.0.1]:%d %s", s.port, authorized(k.signer.PublicKey()))
}

func testUnknown(t *testing.T, k kind) {
	s := k.start(t, want{})
	cfg := s.unpinned(t)
	err := try(t, cfg, remote.Options{})
	var unknown *hostkeys.UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "--accept-new-host-keys") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(cfg.KnownHosts[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("known_hosts was made: %v", err)
	}
}

func testChanged(t *testing.T, k kind) {
	s := k.start(t, want{})
	line := s.known(newKey(t))
	cfg := s.unpinned(t, "# a comment", line)
	err := try(t, cfg, remote.Options{AcceptNewHostKeys: true})
	var changed *hostkeys.ChangedError
	if !errors.As(err, &changed) {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(fmt.Sprint(err), "remove line 2 of "+cfg.KnownHosts[0]) {
		t.Errorf("the error names no fix: %v", err)
	}
	if data, _ := os.ReadFile(cfg.KnownHosts[0]); string(data) != "# a comment\n"+line {
		t.Errorf("known_hosts was changed: %q", data)
	}
	cfg = s.unpinned(t, "@revoked * "+authorized(s.hostKey.signer.PublicKey()), s.known(s.hostKey))
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &changed) || !strings.Contains(err.Error(), " is revoked: ") {
		t.Errorf("a revoked key: %v", err)
	}
}

func testAcceptNew(t *testing.T, k kind) {
	s := k.start(t, want{})
	known := &hostkeys.KnownHosts{} // what one connection adds, the others see
	// The last line has no newline at its end: it must stay a line.
	cfg := s.unpinned(t, "# ours", "other.example "+authorized(newKey(t).signer.PublicKey()))
	for range 2 {
		if err := try(t, cfg, remote.Options{AcceptNewHostKeys: true, KnownHosts: known}); err != nil {
			t.Fatal(err)
		}
	}
	data, _ := os.ReadFile(cfg.KnownHosts[0])
	if lines := strings.Split(string(data), "\n"); len(lines) != 4 || lines[2] != s.known(s.hostKey) {
		t.Errorf("known_hosts: %q", data)
	}
	if err := try(t, cfg, remote.Options{KnownHosts: known}); err != nil {
		t.Errorf("the accepted key is not known: %v", err)
	}

	cfg = s.unpinned(t) // neither the file nor its folder exist
	cfg.AcceptNew, cfg.HashKnownHosts = true, true
	if err := try(t, cfg, remote.Options{KnownHosts: known}); err != nil {
		t.Fatal(err)
	}
	data, _ = os.ReadFile(cfg.KnownHosts[0])
	if !strings.HasPrefix(string(data), "|1|") {
		t.Errorf("not hashed: %q", data)
	}
	cfg.AcceptNew = false
	if err := try(t, cfg, remote.Options{KnownHosts: known}); err != nil {
		t.Errorf("the hashed key is not known: %v", err)
	}

	cfg.KnownHosts = []string{"/dev/null"}
	if err := try(t, cfg, remote.Options{AcceptNewHostKeys: true, KnownHosts: known}); err != nil {
		t.Errorf("with /dev/null: %v", err)
	}
}

// Many connections that accept at the same time write one line.
func testAcceptNewAtOnce(t *testing.T, k kind) {
	s := k.start(t, want{})
	cfg := s.unpinned(t)
	known := &hostkeys.KnownHosts{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := try(t, cfg, remote.Options{AcceptNewHostKeys: true, KnownHosts: known}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if data, _ := os.ReadFile(cfg.KnownHosts[0]); string(data) != s.known(s.hostKey)+"\n" {
		t.Errorf("known_hosts: %q", data)
	}
}

func testKnownHostsForms(t *testing.T, k kind) {
	s := k.start(t, want{})
	hostKey := authorized(s.hostKey.signer.PublicKey())
	addr := fmt.Sprintf("[127.0.0.1]:%d", s.port)
	for name, line := range map[string]string{
		"with port":          addr + " " + hostKey,
		"hashed":             xknownhosts.HashHostname(addr) + " " + hostKey,
		"wildcard":           "127.* " + hostKey,
		"list":               "other.example," + addr + " " + hostKey,
		"behind a bad line":  "some.host ssh-unheard-of AAAA\n" + addr + " " + hostKey,
		"behind a bad hash":  "|1|x|y " + hostKey + "\n" + addr + " " + hostKey,
		"behind a bad port":  "[some.host " + hostKey + "\n@revoked! x " + hostKey + "\n" + addr + " " + hostKey,
		"behind a long line": strings.Repeat("x", 100_000) + "\n" + addr + " " + hostKey,
		"behind a torn line": "some.ho\n\n" + addr + " " + hostKey + " comment",
	} {
		if err := try(t, s.unpinned(t, line), remote.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := s.unpinned(t, "node-1 "+hostKey)
	cfg.HostKeyAlias = "node-1"
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Errorf("alias: %v", err)
	}
	var unknown *hostkeys.UnknownError
	if err := try(t, s.unpinned(t, "127.0.0.1 "+hostKey), remote.Options{}); !errors.As(err, &unknown) {
		t.Errorf("an entry for port 22: %v", err)
	}
	// A revoked key behind a bad line stays revoked.
	var changed *hostkeys.ChangedError
	if err := try(t, s.unpinned(t, "|1|x|y "+hostKey, "@revoked * "+hostKey, addr+" "+hostKey), remote.Options{}); !errors.As(err, &changed) || !strings.Contains(err.Error(), " is revoked: ") {
		t.Errorf("revoked: %v", err)
	}
	// A change behind a bad line is still reported with the file's own name.
	cfg = s.unpinned(t, "some.host ssh-unheard-of AAAA", s.known(newKey(t)))
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &changed) || !strings.Contains(err.Error(), "remove line 2 of "+cfg.KnownHosts[0]) {
		t.Errorf("error %v", err)
	}
}

func testWrongKey(t *testing.T, k kind) {
	cfg := k.start(t, want{}).config(t)
	wrong := newKey(t)
	cfg.IdentityFiles = []string{wrong.file, "/no/such/key", "/root/.ssh/id_xmss"}
	err := try(t, cfg, remote.Options{})
	var auth *remote.AuthError
	if !errors.As(err, &auth) || !strings.Contains(err.Error(), ": tried "+wrong.file+", /no/such/key (no such file); add") {
		t.Errorf("error %v", err)
	}
}

func testEncryptedKey(t *testing.T, k kind) {
	locked := newLockedKey(t)
	cfg := k.start(t, want{user: locked}).config(t)
	err := try(t, cfg, remote.Options{})
	var auth *remote.AuthError
	if !errors.As(err, &auth) || !strings.Contains(err.Error(), locked.file+" (encrypted; add it to your ssh-agent with ssh-add)") {
		t.Errorf("error %v", err)
	}
	good := newKey(t)
	cfg = k.start(t, want{user: good}).config(t)
	cfg.IdentityFiles = []string{locked.file, good.file}
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Error(err)
	}
}

// serveAgent makes a keyring an ssh-agent.
func serveAgent(t *testing.T, keyring agent.Agent) (socket string) {
	t.Helper()
	socket = filepath.Join(shortDir(t), "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(keyring, conn)
		}
	}()
	return socket
}

func testAgent(t *testing.T, k kind) {
	keyring := agent.NewKeyring()
	socket := serveAgent(t, keyring)
	_, private, _ := generateKey()
	if err := keyring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	signers, _ := keyring.Signers()
	cfg := k.start(t, want{user: key{signer: signers[0]}}).config(t)
	cfg.IdentityFiles, cfg.IdentityAgent, cfg.IdentitiesOnly = nil, socket, false
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Error(err)
	}
	var auth *remote.AuthError
	cfg.IdentitiesOnly = true
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &auth) {
		t.Errorf("a key that no IdentityFile names: %v", err)
	}
	public := filepath.Join(t.TempDir(), "id.pub")
	os.WriteFile(public, []byte(authorized(signers[0].PublicKey())), 0o600)
	for _, file := range []string{public, strings.TrimSuffix(public, ".pub")} {
		cfg.IdentityFiles = []string{file}
		if err := try(t, cfg, remote.Options{}); err != nil {
			t.Errorf("IdentityFile %s: %v", file, err)
		}
	}
}
