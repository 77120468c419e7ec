package remote_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// makeAlice gives a mount namespace of our own a user with a password, who may
// become root. Outside the namespace nothing changes.
const makeAlice = `set -e
mount --make-rprivate /
mkdir "$1/etc"
cp -a /etc/. "$1/etc"
mount --bind "$1/etc" /etc
for d in /run /var/lib/sudo /var/log; do mount -t tmpfs tmpfs $d; done
useradd -M -d / -s /bin/sh alice
echo 'alice:open sesame' | chpasswd
echo 'alice ALL=(ALL) ALL' >/etc/sudoers
shift
exec "$@"
`

// TestRealSudoWithPassword logs in to a real sshd as a user who needs a
// password for the real sudo.
func TestRealSudoWithPassword(t *testing.T) {
	if os.Getenv("NIXBENCH_TEST_INSIDE") == "" {
		t.Parallel()
		outside(t)
		return
	}
	s := kind(realSSHD).start(t, want{login: "alice"})
	cfg := s.config(t)
	cfg.Escalation = []string{"sudo", "-H", "--"}
	whoami := sh(`printf "%s:" "$(id -un)"; cat`)

	var refused *remote.EscalationError
	err := dial(t, cfg, remote.Options{}).Run(t.Context(), remote.Cmd{Argv: whoami, Sudo: true})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "wheelNeedsPassword") {
		t.Errorf("without a prompt: %v", err)
	}

	var asked atomic.Int32
	conn := dial(t, cfg, remote.Options{Prompt: answers(t, &asked, "open barley", "open sesame")})
	payload := strings.Repeat("line\n", 100000)
	for range 3 {
		var out, stderr bytes.Buffer
		err := conn.Run(t.Context(), remote.Cmd{Argv: whoami, Stdin: strings.NewReader(payload), Stdout: &out, Stderr: &stderr, Sudo: true})
		if err != nil || out.String() != "root:"+payload {
			t.Errorf("%.20q…, %d bytes, %v", &out, out.Len(), err)
		}
	}
	err = conn.Run(t.Context(), remote.Cmd{Argv: sh("kill -TERM $$"), Sudo: true})
	if failed := (*remote.RunError)(nil); !errors.As(err, &failed) || failed.Signal != "TERM" {
		t.Errorf("a signal behind sudo: %v", err)
	}
	if got := exitStatus(t, conn.Run(t.Context(), remote.Cmd{Argv: sh("exit 4"), Sudo: true})); got != 4 {
		t.Errorf("status %d", got)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := t.TempDir() + "/pid"
	result := make(chan error, 1)
	go func() {
		result <- conn.Run(ctx, remote.Cmd{Argv: sh("trap '' TERM; echo $$ >$1; while :; do sleep 0.1; done", file), Sudo: true})
	}()
	pid := readPid(t, file)
	cancel()
	<-result
	gone(t, pid, time.Second)
}

// outside runs this test again in a mount namespace.
func outside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a mount namespace")
	}
	findSSHD(t)
	fixture.Require(t, "unshare", "sudo", "useradd", "chpasswd")
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/var/lib/sudo").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %s", out)
	}
	cmd := exec.Command("unshare", "-m", "sh", "-c", makeAlice, "sh", t.TempDir(), os.Args[0], "-test.v", "-test.run=^TestRealSudoWithPassword$")
	cmd.Env = append(os.Environ(), "NIXBENCH_TEST_INSIDE=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestRealSudoWithPassword")) {
		t.Error(err)
	}
}
