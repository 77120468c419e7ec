package closure

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// OpenSSH itself prints how it reads the configuration.
func TestSSHConfigAsOpenSSHReadsIt(t *testing.T) {
	fixture.Require(t, "ssh")
	pinned, err := sshtest.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	full := remote.Config{
		Node: "web-1", HostName: "web.example", Port: 2222, User: "alice", Network: "tcp6",
		IdentityFiles: []string{"/keys/with blank", "/keys/100%d"}, CertificateFiles: []string{"/keys/cert"},
		IdentityAgent: "/run/agent", IdentitiesOnly: true, HostKeyAlgos: []string{"ssh-ed25519"},
		KnownHosts: []string{"/known hosts", "/more"}, GlobalKnownHosts: []string{"/etc/known"}, HostKeyAlias: "alias.example",
		ProxyCommand: "nc -X 5 'web example' 2222 -u 100%", ConnectTimeout: 7 * time.Second,
	}
	for name, test := range map[string]struct {
		change func(*remote.Config)
		alias  string
		want   []string
		never  []string
	}{
		"everything": {func(*remote.Config) {}, "web-1", []string{
			"hostname web.example", "port 2222", "user alice", "addressfamily inet6", "identityfile /keys/with blank", "identityfile /keys/100%%d",
			"certificatefile /keys/cert", "identityagent /run/agent", "identitiesonly yes", "hostkeyalgorithms ssh-ed25519",
			"userknownhostsfile /known hosts /more", "globalknownhostsfile /etc/known", "hostkeyalias alias.example",
			"proxycommand nc -X 5 'web example' 2222 -u 100%%", "connecttimeout 7", "batchmode yes", "stricthostkeychecking true"}, nil},
		"pinned": {func(c *remote.Config) { c.HostKeys = []ssh.PublicKey{pinned.PublicKey()} }, "web-1",
			[]string{"globalknownhostsfile none", "hostkeyalias web-1"}, []string{"/known hosts", "alias.example"}},
		"nothing": {func(c *remote.Config) {
			*c = remote.Config{Node: "a node", HostName: "10.0.0.1", Port: 22, User: "root"}
		}, "node", []string{"identityfile none", "identityagent none", "userknownhostsfile none", "identitiesonly no"}, []string{"proxycommand", "proxyjump"}},
		"jump": {func(c *remote.Config) {
			c.ProxyCommand, c.Via = "", &remote.Config{HostName: "jump", Port: 22, User: "bob"}
		}, "web-1",
			[]string{"proxyjump web-1-via"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := full
			test.change(&cfg)
			alias, opts, err := writeSSHConfig(t.TempDir(), cfg)
			if err != nil || alias != test.alias {
				t.Fatalf("%q, %v", alias, err)
			}
			out, err := exec.Command("ssh", append(strings.Fields(opts), "-G", alias)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, w := range test.want {
				if !strings.Contains("\n"+string(out), "\n"+w+"\n") {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
			for _, n := range test.never {
				if strings.Contains(string(out), n) {
					t.Errorf("%q in\n%s", n, out)
				}
			}
		})
	}
	full.IdentityFiles = []string{`/quote"d`}
	if _, _, err := writeSSHConfig(t.TempDir(), full); err == nil {
		t.Error("a quote in a file's name cannot be told to ssh")
	}
}

// OpenSSH logs in with it, through a jump host, to pinned keys and no others.
func TestSSHConfigLogsIn(t *testing.T) {
	fixture.Require(t, "ssh")
	target, h := startServer(t, sshtest.Options{})
	jump, via := startServer(t, sshtest.Options{})
	cfg, viaCfg := h.Config(), via.Config()
	cfg.Via = &viaCfg
	login := func() (string, error) {
		dir := shortDir(t)
		alias, opts, err := writeSSHConfig(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dir, "ssh_config")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		out, err := exec.Command("ssh", append(strings.Fields(opts), alias, "echo hello")...).CombinedOutput()
		return string(out), err
	}
	if out, err := login(); err != nil || out != "hello\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if target.Handshakes() != 1 || jump.Handshakes() != 1 {
		t.Errorf("%d and %d logins", target.Handshakes(), jump.Handshakes())
	}
	cfg.HostKeys = viaCfg.HostKeys
	if out, err := login(); err == nil || !strings.Contains(out, "Host key verification failed") {
		t.Errorf("%q, %v", out, err)
	}
}
