package closure

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// daemonNode is a node with a real Nix daemon, on this machine: a store in a folder
// of its own, to which nix-store goes when it is run over SSH.
func daemonNode(t testing.TB) (h *remote.Host, socket string) {
	t.Helper()
	dir := shortDir(t)
	t.Cleanup(func() { exec.Command("chmod", "-R", "u+w", dir).Run() }) // stores are read-only
	socket = filepath.Join(dir, "socket")
	env := append(os.Environ(), "NIX_DAEMON_SOCKET_PATH="+socket)
	cmd := exec.Command("nix-daemon", "--store", filepath.Join(dir, "root"))
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for range 500 {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, h = startServer(t, sshtest.Options{Env: append(env, "NIX_REMOTE=daemon")})
	return h, socket
}

// TestRealDaemon copies one closure to two nodes at once.
func TestRealDaemon(t *testing.T) {
	fixture.Require(t, "nix", "nix-store", "nix-daemon")
	if os.Getuid() != 0 {
		t.Skip("only root has a store without a daemon")
	}
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	out, drv := build(t, "real", 100, 1000)
	var work sync.WaitGroup
	for range 2 {
		h, socket := daemonNode(t)
		c := newCounter(t)
		c.NixOptions = [][2]string{{"connect-timeout", "3"}}
		c.socket = at(socket)
		work.Go(func() {
			for i, want := range []Stats{{Paths: 101, Bytes: 117_544}, {}} {
				got, err := c.Copy(t.Context(), "web-1", h, out, "")
				if err != nil || got.Paths != want.Paths || got.Bytes/10_000 != want.Bytes/10_000 {
					t.Errorf("%d: %+v, %v", i, got, err)
				}
			}
			if err := c.BuildOnTarget(t.Context(), "web-1", h, drv, "", ""); err != nil {
				t.Error(err) // nothing to build, but the derivations go there
			}
			nothingLeft(t, c.Dir)
			verifyStore(t, socket)
			if len(c.argvs) != 2 || !strings.HasPrefix(c.argvs[0], "nix-daemon --stdio ") {
				t.Errorf("%q", c.argvs)
			}
		})
	}
	work.Wait()
}
