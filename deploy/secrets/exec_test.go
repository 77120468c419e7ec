package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/nixeval"
)

func source(change func(*nixeval.Key)) nixeval.Deployment {
	k := nixeval.Key{Name: "k", DestDir: "/run/keys", User: "root", Group: "root", Permissions: "0600", UploadAt: preActivation}
	change(&k)
	return nixeval.Deployment{Keys: keys{"k": k}}
}

// A source that never ends is an error immediately.
func TestSourcesWithoutAnEnd(t *testing.T) {
	pipe, zero := filepath.Join(t.TempDir(), "pipe"), "/dev/zero"
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, d := range map[string]nixeval.Deployment{
		"keyFile: read " + pipe + ": it is a pipe, not a regular file": source(func(k *nixeval.Key) { k.KeyFile = &pipe }),
		"keyFile: read /dev/zero: it is a device, not a regular file":  source(func(k *nixeval.Key) { k.KeyFile = &zero }),
		"keyCommand: sh failed: its output: it is larger than 16 MiB":  source(func(k *nixeval.Key) { k.KeyCommand = []string{"sh", "-c", "exec cat /dev/zero"} }),
		"keyCommand: sh failed: its output: it is larger than 16 MiB\x00ignores.": source(func(k *nixeval.Key) {
			k.KeyCommand = []string{"sh", "-c", "trap '' TERM PIPE; cat /dev/zero; sleep 9999"}
		}),
	} {
		want, _, _ = strings.Cut(want, "\x00")
		begun := time.Now()
		_, err := (&Uploader{}).Load(t.Context(), "n", d, All)
		if err == nil || err.Error() != "n.deployment.keys.k: "+want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s: after %v", want, took)
		}
	}
}

// All processes that a keyCommand has started end with it, also if they ignore SIGTERM.
func TestCancelledCommandsEnd(t *testing.T) {
	if hasTerminal() {
		t.Skip("at a terminal, Ctrl-C ends the processes")
	}
	for name, script := range map[string]string{
		"listens":       `echo $$ > pids; sleep 9999 & echo $! >> pids; wait`,
		"does not":      `trap '' TERM; echo $$ > pids; sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done'; :`,
		"its child not": `echo $$ > pids; (trap '' TERM; exec sleep 9999) & echo $! >> pids; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pids := func() []string {
				data, _ := os.ReadFile(filepath.Join(dir, "pids"))
				return strings.Fields(string(data))
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := runProgram(ctx, "sh", "-c", "cd "+dir+"; "+script)
				done <- err
			}()
			for begun := time.Now(); len(pids()) < 2; time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > 20*time.Second {
					t.Fatal("it did not start")
				}
			}
			why := errors.New("interrupted")
			begun := time.Now()
			cancel(why)
			if err := <-done; !errors.Is(err, why) {
				t.Error(err)
			}
			if took := time.Since(begun); took > 10*time.Second { // on an idle machine, 0.3 s
				t.Errorf("after %v", took)
			}
			for _, pid := range pids() {
				for begun := time.Now(); runs(pid); time.Sleep(10 * time.Millisecond) {
					if time.Since(begun) > 10*time.Second {
						t.Fatalf("process %s is still there", pid)
					}
				}
			}
		})
	}
}

// runs reports whether a process exists and is not a zombie.
func runs(pid string) bool {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(data), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// A command's stderr is neither a part of the key nor of an error: it could contain a part of a secret.
func TestExecDropsStderr(t *testing.T) {
	for _, exit := range []string{"0", "1"} {
		out, err := runProgram(t.Context(), "sh", "-c", "echo key; echo noise >&2; exit "+exit)
		if exit == "0" && string(out) != "key\n" || strings.Contains(fmt.Sprint(err), "noise") || (err != nil) != (exit == "1") {
			t.Errorf("exit %s: %q, %v", exit, out, err)
		}
	}
}
