package remote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// TestRealSSH asks the installed ssh, about a configuration of our own.
func TestRealSSH(t *testing.T) {
	t.Parallel()
	fixture.Require(t, "ssh")
	s := kind(inProcess).start(t, want{})
	dir := t.TempDir()
	known := filepath.Join(dir, "known_hosts")
	os.WriteFile(known, []byte("the-node "+authorized(s.hostKey.signer.PublicKey())+"\n"), 0o600)
	config := filepath.Join(dir, "config")
	os.WriteFile(config, fmt.Appendf(nil, `Host web
  HostName 127.0.0.1
  Port %d
  User %s
  IdentityFile %s
  IdentityAgent none
  IdentitiesOnly yes
  UserKnownHostsFile %s
  HostKeyAlias the-node
  ProxyJump hop
Host hop
  HostName 127.0.0.1
  Port %[1]d
  User bob
  IdentityFile %[3]s
  UserKnownHostsFile %[4]s
  HostKeyAlias the-node
`, s.port, s.login, s.user.file, known), 0o600)
	cfg, err := sshconfig.Resolve(t.Context(), sshconfig.Target{Name: "node-1", Host: "web", SSHOptions: []string{"-F", config, "-o", "StrictHostKeyChecking=no"}})
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.AcceptNew {
		t.Errorf("%+v", cfg)
	}
	cfg.AcceptNew = false
	conn := dial(t, lively(cfg, 500*time.Millisecond), remote.Options{})
	out, err := conn.Output(t.Context(), remote.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
	if err != nil || len(out) != 1<<20 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	s.freeze()
	var lost *remote.LostError
	if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); !errors.As(err, &lost) {
		t.Errorf("with a frozen jump host: %v", err)
	}
	s.thaw()
	os.Remove(known)
	var unreachable *remote.UnreachableError
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "jump host ssh://hop") ||
		!strings.Contains(err.Error(), "Host key verification failed") || strings.Count(err.Error(), "node-1: ") != 1 {
		t.Errorf("an unknown jump host: %v", err)
	}
	if _, err := sshconfig.Resolve(t.Context(), sshconfig.Target{Name: "node-1", Host: "web", SSHOptions: []string{"-o", "NoSuchOption=x"}}); err == nil ||
		!strings.Contains(strings.ToLower(err.Error()), "nosuchoption") {
		t.Errorf("a bad option: %v", err)
	}
}
