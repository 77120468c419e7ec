package closure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/nixeval"
)

// build makes a store path with n references of size bytes each, and returns it
// with its derivation. The same arguments give the same paths in every run.
func build(t testing.TB, tag string, n, size int) (out, drv string) {
	t.Helper()
	drv = instantiate(t, fmt.Sprintf(`
let sh = name: script: extra: derivation ({ inherit name; system = builtins.currentSystem; builder = "/bin/sh";
  args = [ "-c" "export PATH=/usr/bin:/bin; ${script}" ]; } // extra);
in sh "nixbench-%[1]s" "echo \$parts >\$out" { parts = builtins.genList (i: sh "nixbench-%[1]s-${toString i}" "head -c %[3]d /dev/urandom >\$out" { }) %[2]d; }`,
		tag, n, size))
	path, err := exec.Command("nix-store", "--realise", "--no-gc-warning", "-j4", drv).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path)), drv
}

func instantiate(t testing.TB, expr string) string {
	t.Helper()
	cmd := exec.Command("nix-instantiate", "--expr", expr)
	drv, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, expr)
	}
	return strings.TrimSpace(string(drv))
}

// labHost logs in to a machine of a lab, whose network this process is not in.
func labHost(t testing.TB, l *lab.Lab, machine, user string, env ...string) *remote.Host {
	t.Helper()
	m := l.Machine(machine)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proxy := l.Command(t.Context(), "env", slices.Concat(env, []string{"NIXBENCH_TEST_NETCAT=" + m.IP + ":22", self})...)
	h := remote.NewHost(sshconfig.Config{
		Node: machine, Alias: machine, HostName: m.IP, Port: 22, User: user, Network: "tcp",
		IdentityFiles: []string{l.KeyFile}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{key},
		ProxyCommand: shellescape.QuoteCommand(proxy.Args), Escalation: []string{"sudo", "-n", "-H", "--"},
	}, remote.Options{})
	t.Cleanup(func() { h.Close() })
	return h
}

// counter is a copier that counts its local processes and times itself.
type counter struct {
	*Copier
	*events
	mu    sync.Mutex
	argvs []string
}

func newCounter(t testing.TB) *counter {
	c := &counter{events: &events{}}
	c.Copier = &Copier{Send: c.add, Dir: shortDir(t), Run: func(ctx context.Context, cmd nixeval.Command) ([]byte, error) {
		c.mu.Lock()
		c.argvs = append(c.argvs, strings.Join(cmd.Argv, " "))
		c.mu.Unlock()
		return nixeval.Exec(ctx, cmd)
	}, Start: func(ctx context.Context, cmd nixeval.Command) (io.ReadWriteCloser, error) {
		c.mu.Lock()
		c.argvs = append(c.argvs, strings.Join(cmd.Argv, " "))
		c.mu.Unlock()
		return nixeval.StartPipe(ctx, cmd)
	}}
	return c
}

func (c *counter) timed(t testing.TB, what string, node string, h remote.Connector, path string) Stats {
	t.Helper()
	begin := time.Now()
	got, err := c.Copy(t.Context(), node, h, path, "")
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			t.Logf("hint: %s", e.Hint())
		}
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%s: %+v in %v", what, got, time.Since(begin).Round(time.Millisecond))
	return got
}

func valid(t testing.TB, l *lab.Lab, machine, path string) {
	t.Helper()
	// It reads everything again, and compares it with the hash that was promised.
	l.Run(t, machine, "nix-store --verify-path $(nix-store -qR "+path+")")
}
