package nixeval

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cancelling a command also ends its child processes, even those that ignore SIGTERM.
func TestCancelEndsTheWholeGroup(t *testing.T) {
	for name, script := range map[string]string{
		"obedient":  `sleep 100 & echo $! > "$0"; wait`,
		"obstinate": `trap "" TERM; (trap "" TERM; sleep 100) & echo $! > "$0"; while :; do sleep 1; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pidFile := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("stop")
			done := make(chan error, 1)
			go func() {
				_, err := Exec(ctx, Command{Argv: []string{"sh", "-c", script, pidFile}})
				done <- err
			}()
			pid := awaitPID(t, pidFile)
			cancel(why)
			select {
			case err := <-done:
				if !errors.Is(err, why) {
					t.Errorf("error %v, want the cause", err)
				}
			case <-time.After(exitGrace + 5*time.Second):
				t.Fatal("it did not end")
			}
			awaitGone(t, pid)
		})
	}
}

func awaitPID(t *testing.T, file string) int {
	t.Helper()
	for range 500 {
		data, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			return pid
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the child did not start")
	return 0
}

// awaitGone waits until the process has ended. It may still be a zombie that its new parent has not
// reaped.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for range 300 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d outlived its parent", pid)
}

func TestExecSplitsStderrAndKeepsStdout(t *testing.T) {
	var lines []string
	out, err := Exec(t.Context(), Command{
		Argv:   []string{"sh", "-c", `printf 'a\nb\r\nlast' >&2; echo out`},
		Stderr: func(l string) { lines = append(lines, l) },
	})
	if err != nil || string(out) != "out\n" || strings.Join(lines, "|") != "a|b|last" {
		t.Errorf("stdout %q, stderr %q, error %v", out, lines, err)
	}
}

// A program that asks on a terminal must fail instead of being stopped in the background. It has no
// terminal because it runs in its own session.
func TestExecHasNoTerminal(t *testing.T) {
	out, err := Exec(t.Context(), Command{Argv: []string{"sh", "-c", "echo $$; cut -d ' ' -f 6 /proc/$$/stat"}})
	pid, session, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || pid == "" || pid != session {
		t.Errorf("process %s is in session %s, error %v", pid, session, err)
	}
}

// A command succeeds even if it leaves a process running that holds stderr open.
func TestExecDoesNotWaitForLeftovers(t *testing.T) {
	start := time.Now()
	out, err := Exec(t.Context(), Command{Argv: []string{"sh", "-c", "sleep 8 & echo done"}, Disposable: true})
	if err != nil || string(out) != "done\n" || time.Since(start) > 5*time.Second {
		t.Errorf("%q, error %v, after %v", out, err, time.Since(start))
	}
}

func TestExecMissingProgram(t *testing.T) {
	if _, err := Exec(t.Context(), Command{Argv: []string{"no-such-program-here"}}); !errors.Is(err, ErrNoNix) {
		t.Errorf("error %v", err)
	}
}
