package remote_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"

	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// fakeSudo behaves as sudo does where its user has the password $PASSWORD, or
// needs none if that is empty. It reads the password without a byte more, and
// asks three times. FAKE_ROOT shows that a command went through it.
const fakeSudo = `#!/bin/sh
ask=tty prompt='[sudo] password: '
while :; do
	case $1 in
	-n) ask=no; shift ;;
	-S) ask=stdin; shift ;;
	-p) prompt=$2; shift 2 ;;
	-H) shift ;;
	--) shift; break ;;
	*) break ;;
	esac
done
if [ -n "$PASSWORD" ]; then
	[ "$ask" = no ] && { echo 'sudo: a password is required' >&2; exit 1; }
	[ "$ask" = tty ] && { echo 'sudo: a terminal is required to read the password' >&2; exit 1; }
	echo 'We trust you have received the usual lecture.' >&2
	tries=0
	while :; do
		printf %s "$prompt" >&2
		IFS= read -r answer || { echo 'sudo: no password was provided' >&2; exit 1; }
		[ "$answer" = "$PASSWORD" ] && break
		tries=$((tries+1))
		[ $tries = 3 ] && { echo 'sudo: 3 incorrect password attempts' >&2; exit 1; }
		echo 'Sorry, try again.' >&2
	done
fi
unset PASSWORD
FAKE_ROOT=1 exec "$@"
`

// sudoHost is a server on which alice may become root with a password.
func sudoHost(t *testing.T, password string, opts remote.Options) *remote.Conn {
	t.Helper()
	bin := t.TempDir()
	syscall.ForkLock.RLock() // otherwise a process that another test starts may keep the file open, and the shell takes the next sudo in PATH
	err := os.WriteFile(filepath.Join(bin, "sudo"), []byte(fakeSudo), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return aliceOn(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "PASSWORD=" + password}, opts)
}

func aliceOn(t *testing.T, env []string, opts remote.Options) *remote.Conn {
	t.Helper()
	server, err := sshtest.Start(sshtest.Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	alice, port := "alice", server.Port()
	cfg, err := sshconfig.Resolve(t.Context(), sshconfig.Target{
		Name: "node-1", Host: "127.0.0.1", Port: &port, User: &alice,
		IdentityFiles: []string{newKey(t).file}, HostKeys: []string{server.HostKey()},
		Escalation: []string{"sudo", "-H", "--"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, cfg, opts)
}

func answers(t *testing.T, asked *atomic.Int32, words ...string) remote.Prompt {
	return func(_ context.Context, question string) ([]byte, error) {
		if !strings.Contains(question, "sudo password of alice on node-1") {
			t.Errorf("question %q", question)
		}
		n := int(asked.Add(1))
		if n > len(words) {
			return nil, errors.New("asked too often")
		}
		return []byte(words[n-1]), nil
	}
}

// rootCat copies stdin, and prints whether it runs as root.
var rootCat = sh(`printf "%s:" "$FAKE_ROOT"; cat`)

func TestSudoWithoutPassword(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]remote.Options{
		"without a prompt": {},
		"with a prompt":    {Prompt: answers(t, new(atomic.Int32))},
	} {
		conn := sudoHost(t, "", opts)
		out, err := conn.Output(t.Context(), remote.Cmd{Argv: rootCat, Stdin: strings.NewReader("payload"), Sudo: true})
		if err != nil || string(out) != "1:payload" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		out, err = conn.Output(t.Context(), remote.Cmd{Argv: rootCat, Stdin: strings.NewReader("payload")})
		if err != nil || string(out) != ":payload" {
			t.Errorf("%s: not through sudo: %q, %v", name, out, err)
		}
		for _, status := range []int{0, 1, 127, 255} {
			err := conn.Run(t.Context(), remote.Cmd{Argv: sh("exit $1", strconv.Itoa(status)), Sudo: true})
			if got := exitStatus(t, err); got != status {
				t.Errorf("%s: exit %d: got %d", name, status, got)
			}
		}
	}
}

func TestSudoWithPassword(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	conn := sudoHost(t, "hunter2 'x", remote.Options{Prompt: answers(t, &asked, "hunter2 'x")})
	var wg sync.WaitGroup
	payload := bytes.Repeat([]byte("line\n"), 100000)
	for range 12 {
		wg.Go(func() {
			var out, stderr bytes.Buffer
			err := conn.Run(t.Context(), remote.Cmd{Argv: rootCat, Stdin: bytes.NewReader(payload), Stdout: &out, Stderr: &stderr, Sudo: true})
			if err != nil || out.String() != "1:"+string(payload) {
				t.Errorf("%d bytes, %v", out.Len(), err)
			}
			if strings.Contains(stderr.String(), "nixbench-") || strings.Contains(stderr.String(), "hunter2") {
				t.Errorf("stderr %q", &stderr)
			}
		})
	}
	wg.Wait()
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestSudoWrongPassword(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	conn := sudoHost(t, "right", remote.Options{Prompt: answers(t, &asked, "wrong", "right")})
	out, err := conn.Output(t.Context(), remote.Cmd{Argv: rootCat, Stdin: strings.NewReader("payload"), Sudo: true})
	if err != nil || string(out) != "1:payload" || asked.Load() != 2 {
		t.Errorf("%q, %v, asked %d times", out, err, asked.Load())
	}

	asked.Store(0)
	conn = sudoHost(t, "right", remote.Options{Prompt: answers(t, &asked, "a", "b", "c", "right")})
	var refused *remote.EscalationError
	err = conn.Run(t.Context(), remote.Cmd{Argv: rootCat, Sudo: true})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "3 incorrect") {
		t.Errorf("error %v", err)
	}
	if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}, Sudo: true}); err != nil {
		t.Errorf("the wrong password was kept: %v", err)
	}
}

func TestSudoWithoutPrompt(t *testing.T) {
	t.Parallel()
	conn := sudoHost(t, "secret", remote.Options{})
	err := conn.Run(t.Context(), remote.Cmd{Argv: rootCat, Stdin: strings.NewReader("payload"), Sudo: true})
	var refused *remote.EscalationError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "wheelNeedsPassword") {
		t.Errorf("error %v", err)
	}
}

func TestSudoPromptRefused(t *testing.T) {
	t.Parallel()
	stop := errors.New("user pressed ^C")
	conn := sudoHost(t, "secret", remote.Options{Prompt: func(context.Context, string) ([]byte, error) { return nil, stop }})
	begin := time.Now()
	err := conn.Run(t.Context(), remote.Cmd{Argv: rootCat, Sudo: true})
	var refused *remote.EscalationError
	if !errors.As(err, &refused) || !errors.Is(err, stop) || time.Since(begin) > 4*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

func TestSudoCancel(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	conn := sudoHost(t, "secret", remote.Options{Prompt: answers(t, &asked, "secret")})
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- conn.Run(ctx, remote.Cmd{Argv: sh("trap '' TERM; echo $$ >$1; while :; do sleep 0.1; done", file), Sudo: true})
	}()
	pid := readPid(t, file)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	gone(t, pid, time.Second)
	if asked.Load() != 1 {
		t.Errorf("asked %d times: ending a command must not ask", asked.Load())
	}
}

// TestRealSudo runs the real sudo as root, who never needs a password: what
// it shows is that sudo takes our options.
func TestRealSudo(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root is sure to be let through")
	}
	fixture.Require(t, "sudo")
	for name, opts := range map[string]remote.Options{
		"-n": {},
		"-S": {Prompt: answers(t, new(atomic.Int32))},
	} {
		conn := aliceOn(t, nil, opts)
		out, err := conn.Output(t.Context(), remote.Cmd{
			Argv: append([]string{"env", "A=b"}, sh(`printf "%s:%s:" "$SUDO_USER" "$A"; cat`)...), Stdin: strings.NewReader("payload"), Sudo: true,
		})
		if err != nil || string(out) != "root:b:payload" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		err = conn.Run(t.Context(), remote.Cmd{Argv: sh("exit 3"), Sudo: true})
		if got := exitStatus(t, err); got != 3 {
			t.Errorf("%s: status %d", name, got)
		}
	}
}
