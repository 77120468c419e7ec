package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
)

// Each command ends with an error for a compromised node, without a panic and with little memory, shows no control
// characters, and executes what it should on the other node.
func TestHostileNode(t *testing.T) {
	fixture.Require(t, "nix", "ssh")
	t.Parallel()
	mini := fixture.Nixpkgs(t)
	good := startServer(t, func(_ context.Context, e *sshtest.Exec) int {
		fmt.Fprintln(e.Stdout, "hello")
		return 0
	})
	for _, test := range []struct {
		attack   string
		commands []string
	}{
		{"escapes", []string{"exec -- echo", "--json exec -- echo", "logs --on *", "logs bad", "--json logs bad", "status", "--json status", "check --timeout=1s", "--json check --timeout=1s",
			"plan", "--json plan", "--verbose apply --yes", "--json apply --yes", "apply keys --yes", "generations", "--json generations", "facts", "reboot --yes --timeout=1s",
			"rollback --yes", "support --output=support.tar.gz"}},
		{"failing with escapes", []string{"exec -- echo", "status", "check --timeout=1s", "plan", "--json apply --yes", "generations", "reboot --yes"}},
		{"endless log", []string{"exec -- echo", "logs bad", "check --timeout=1s", "apply --yes", "reboot --yes", "support --output=support.tar.gz"}},
		{"endless list", []string{"status", "plan"}},
		{"endless beats", []string{"apply --yes", "apply keys --yes"}},
		{"deep JSON", []string{"exec -- echo", "status"}},
	} {
		t.Run(test.attack, func(t *testing.T) {
			t.Parallel()
			bad := startServer(t, sshtest.Attacks[test.attack])
			dir := t.TempDir()
			key, known, config := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts"), filepath.Join(dir, "ssh_config")
			host := func(name string, s *sshtest.Server) string {
				return fmt.Sprintf("Host %s\n HostName 127.0.0.1\n Port %d\n IdentityFile %s\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n",
					name, s.Port(), key, known)
			}
			for file, text := range map[string]string{
				key:    string(sshtest.GeneratePrivateKey()),
				known:  good.KnownHostsLine() + "\n" + bad.KnownHostsLine() + "\n",
				config: host("good", good) + host("bad", bad),
				filepath.Join(dir, "hive.nix"): fmt.Sprintf(`{ meta.nixpkgs = import %s { system = "x86_64-linux"; };
defaults = { system.stateVersion = "25.05"; deployment = { targetUser = "root"; sshOptions = [ "-F" "%s" ]; }; };
good = { }; bad = { }; }`, mini, config),
			} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, line := range test.commands {
				t.Run(line, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					cmd := exec.CommandContext(ctx, "nixbench", strings.Fields(line)...)
					cmd.Dir, cmd.Env = dir, append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+dir)
					cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 5*time.Second
					out := &shown{full: cancel, wantsHello: strings.Contains(line, "exec")}
					cmd.Stdout, cmd.Stderr = out, out
					begin := time.Now()
					err := cmd.Run()
					took, memory := time.Since(begin), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10
					t.Logf("%.1fs, exit code %d, %d MiB, %d bytes: %.400q", took.Seconds(), cmd.ProcessState.ExitCode(), memory, out.size, out.text)
					if errors.Is(err, exec.ErrWaitDelay) || took > 60*time.Second || memory > maxMemory {
						t.Errorf("%v, %v, %d MiB", err, took, memory)
					}
					if out.hidden != "" || strings.Contains(out.text, "goroutine") {
						t.Errorf("it shows %q: %s", out.hidden, out.text)
					}
					if out.wantsHello && !out.hello {
						t.Errorf("no output of the other node: %q", out.text)
					}
				})
			}
		})
	}
}

// maxMemory is the memory that a command may use, in MiB. With the race detector, as in `make test`, a program needs some times as much.
var maxMemory = func() int64 {
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 1024
	}
	return 256
}()

// shown is the output of a command: its size, its begin, and a part that is not printable.
type shown struct {
	size         int
	text, hidden string
	hello        bool
	wantsHello   bool   // exec: the other node's output must be shown
	full         func() // is called when there is enough output, as a user ends exec and logs
}

func (s *shown) Write(p []byte) (int, error) {
	text := string(p)
	s.size += len(p)
	s.text += text[:min(len(text), max(0, 64<<10-len(s.text)))]
	s.hello = s.hello || strings.Contains(text, "hello")
	if s.size > 8<<20 && (s.hello || !s.wantsHello) {
		s.full()
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\ufffd", "") // a write may end within a character
	if event.Printable(text) != text && s.hidden == "" {
		s.hidden = text
	}
	return len(p), nil
}

func startServer(t *testing.T, handler sshtest.Handler) *sshtest.Server {
	t.Helper()
	s, err := sshtest.Start(sshtest.Options{Handler: handler, RepeatMarks: true, ForbidForwarding: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
