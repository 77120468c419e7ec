package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

func testExitStatus(t *testing.T, k kind) {
	s := k.start(t, want{})
	conn, addr := s.dial(t), s.config(t).Addr()
	for _, status := range []int{0, 1, 2, 4, 100, 126, 127, 255} {
		err := conn.Run(t.Context(), remote.Cmd{Argv: sh("exit $1", strconv.Itoa(status))})
		if got := exitStatus(t, err); got != status {
			t.Errorf("exit %d: got %d", status, got)
		}
	}
	err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"no-such-program", "x"}})
	if got := exitStatus(t, err); got != 127 {
		t.Errorf("a missing program: status %d", got)
	}
	var failed *remote.RunError
	if errors.As(err, &failed) && (failed.Node != "node-1" || !strings.Contains(failed.Stderr, "not found") ||
		!strings.HasPrefix(err.Error(), "node-1: no-such-program x on "+addr+": ")) {
		t.Errorf("the error says %q", err)
	}
	err = conn.Run(t.Context(), remote.Cmd{Argv: sh("exit 1"), Name: "look around"})
	if !strings.HasPrefix(fmt.Sprint(err), "node-1: look around on "+addr+": ") {
		t.Errorf("the error of a command with a name says %q", err)
	}
	for _, argv := range [][]string{nil, {""}, {"-c"}, {"a", "\x00"}} {
		if err := conn.Run(t.Context(), remote.Cmd{Argv: argv}); err == nil {
			t.Errorf("%q was run", argv)
		}
	}
}

func exitStatus(t *testing.T, err error) int {
	t.Helper()
	var failed *remote.RunError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed) && failed.Signal == "" && failed.ShellStatus() == failed.ExitStatus:
		return failed.ExitStatus
	}
	t.Fatalf("not an exit status: %v", err)
	return 0
}

func testSignal(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	for name, status := range map[string]int{"TERM": 143, "KILL": 137, "SEGV": 139} {
		err := conn.Run(t.Context(), remote.Cmd{Argv: sh("kill -" + name + " $$")})
		var failed *remote.RunError
		if !errors.As(err, &failed) || failed.Signal != name || failed.ExitStatus != -1 || failed.ShellStatus() != status {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testStreams(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	random := rand.NewChaCha8([32]byte{1})
	in := make([]byte, 10<<20)
	random.Read(in)
	var out bytes.Buffer
	if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"cat"}, Stdin: bytes.NewReader(in), Stdout: &out, MaxOutput: 10 << 20}); err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(out.Bytes()) != sha256.Sum256(in) {
		t.Errorf("%d bytes came back different from the %d sent", out.Len(), len(in))
	}
	sum, err := conn.Output(t.Context(), remote.Cmd{Argv: []string{"sha256sum"}, Stdin: bytes.NewReader(in)})
	if err != nil || !strings.HasPrefix(string(sum), fmt.Sprintf("%x", sha256.Sum256(in))) {
		t.Errorf("sha256sum: %s, %v", sum, err)
	}
	// A command that does not read its input must not hang, nor must one
	// whose input never ends.
	endless, feed := io.Pipe()
	defer feed.Close()
	for _, stdin := range []io.Reader{bytes.NewReader(in), endless} {
		if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}, Stdin: stdin}); err != nil {
			t.Error(err)
		}
	}
	broken := errors.New("disk broken")
	err = conn.Run(t.Context(), remote.Cmd{Argv: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("half"), failingReader{broken})})
	if !errors.Is(err, broken) {
		t.Errorf("a failed read passed for the end of the input: %v", err)
	}
}

// A command without input must read the end of it, also if that end could reach the server before the
// request for the command.
func testEmptyStdin(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	for i := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var stdin io.Reader
		if i%2 == 1 {
			stdin = strings.NewReader("")
		}
		out, err := conn.Output(ctx, remote.Cmd{Argv: []string{"cat"}, Stdin: stdin})
		cancel()
		if err != nil || len(out) > 0 {
			t.Fatalf("run %d: cat printed %q: %v", i, out, err)
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func testQuoting(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	args := []string{"", " ", "a b", "'", `"`, `'"'"'`, "\n", "a\nb", "\t", "$(id)", "`id`", "$HOME", "${x}", ";", "&&", "|", ">f",
		"-n", "--", "*", "?", "[a]", "{a,b}", "~", "!x", "#", `\`, `\n`, "%s", "ünï→😀", "\xff\xfe", "a=b", strings.Repeat("x", 50000)}
	out, err := conn.Output(t.Context(), remote.Cmd{Argv: append([]string{"printf", `%s\0`}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(args, "\x00") + "\x00"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func testStderrTail(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	var all bytes.Buffer
	err := conn.Run(t.Context(), remote.Cmd{
		Argv:   sh("i=0; while [ $i -lt 3000 ]; do echo line-$i >&2; i=$((i+1)); done; echo the end >&2; exit 3"),
		Stderr: &all,
	})
	var failed *remote.RunError
	if !errors.As(err, &failed) || failed.ExitStatus != 3 {
		t.Fatal(err)
	}
	if len(failed.Stderr) > 5000 || !strings.HasSuffix(failed.Stderr, "line-2999\nthe end\n") {
		t.Errorf("tail of %d bytes: %q", len(failed.Stderr), failed.Stderr)
	}
	if lines := strings.Count(all.String(), "\n"); lines != 3001 || !strings.HasPrefix(all.String(), "line-0\n") {
		t.Errorf("%d lines of stderr, starting with %.30q", lines, all.String())
	}
}

func testFailingWriter(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	full := errors.New("disk full")
	begin := time.Now()
	err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"cat", "/dev/zero"}, Stdout: failingWriter{full}})
	if !errors.Is(err, full) || time.Since(begin) > 4*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	err = conn.Run(t.Context(), remote.Cmd{Argv: []string{"echo", "x"}, Stdout: panickingWriter{}})
	if err == nil || !strings.Contains(err.Error(), "a bug in a parser") {
		t.Errorf("a panic of the writer: %v", err)
	}
}

// Output and time of a command have limits, also if nobody reads the output.
func testLimits(t *testing.T, k kind) {
	s := k.start(t, want{})
	conn := s.dial(t)
	for _, script := range []string{"cat /dev/zero", "cat /dev/zero >&2", "cat /dev/zero & cat /dev/zero >&2"} {
		begin := time.Now()
		var endless *remote.OutputError
		if out, err := conn.Output(t.Context(), remote.Cmd{Argv: sh(script)}); !errors.As(err, &endless) || len(out) > 4<<20 || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: %d bytes of output after %v, error %v", script, len(out), time.Since(begin), err)
		}
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var late *remote.TimeoutError
	if err := conn.Run(limited, remote.Cmd{Argv: []string{"sleep", "60"}}); !errors.As(err, &late) {
		t.Errorf("a command that does not end: %v", err)
	}
	if err := s.dial(t).Run(t.Context(), remote.Cmd{Argv: []string{"cat", "/dev/zero"}, Unlimited: true, Stdout: new(enough)}); !errors.Is(err, errEnough) {
		t.Errorf("without limits: %v", err)
	}
}

// enough is a writer that fails after 5 MiB.
type enough int

var errEnough = errors.New("enough")

func (e *enough) Write(p []byte) (int, error) {
	if *e += enough(len(p)); *e > 5<<20 {
		return 0, errEnough
	}
	return len(p), nil
}

type panickingWriter struct{}

func (panickingWriter) Write([]byte) (int, error) { panic("a bug in a parser") }

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// started runs a command that writes its process id to a file, and returns
// that id once it runs.
func started(t *testing.T, conn *remote.Conn, ctx context.Context, script string) (pid int, result chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	result = make(chan error, 1)
	go func() {
		result <- conn.Run(ctx, remote.Cmd{Argv: sh("echo $$ > $1; "+script, file)})
	}()
	return readPid(t, file), result
}

// readPid waits for a process id in a file.
func readPid(t *testing.T, file string) int {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err == nil && strings.HasSuffix(string(data), "\n") {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
			return pid
		}
	}
	t.Fatal("the command did not start")
	return 0
}

// gone waits for a process to end.
func gone(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(5 * time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d still runs after %v", pid, limit)
}

func testCancel(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	pid, result := started(t, conn, ctx, "sleep 60; :")
	begin := time.Now()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > 1500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	gone(t, pid, time.Second)
	if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); err != nil {
		t.Errorf("the connection is of no use any more: %v", err)
	}
}

func testCancelStubborn(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	pid, result := started(t, conn, ctx, "trap '' TERM HUP INT; while :; do sleep 0.1; done")
	begin := time.Now()
	cancel()
	<-result
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	gone(t, pid, time.Second)
}

// A process that a command leaves behind is not ended with the command.
func testLeftBehind(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	out, err := conn.Output(t.Context(), remote.Cmd{Argv: sh("sleep 60 >/dev/null 2>&1 & echo $!")})
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	time.Sleep(100 * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("process %d does not run any more: %v", pid, err)
	}
}

func testDeadline(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := conn.Run(ctx, remote.Cmd{Argv: []string{"sleep", "60"}})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "node-1: sleep 60 on ") {
		t.Errorf("error %v", err)
	}
	var silent *remote.TimeoutError
	if !errors.As(err, &silent) || silent.Node != "node-1" || silent.Hint() == "" {
		t.Errorf("error %#v", err)
	}
}

func testConcurrent(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			out, err := conn.Output(t.Context(), remote.Cmd{Argv: sh("sleep 0.05; echo $1", strconv.Itoa(i))})
			if err != nil || string(out) != strconv.Itoa(i)+"\n" {
				t.Errorf("run %d: %q, %v", i, out, err)
			}
		})
	}
	wg.Wait()
}

// A server that allows two sessions makes the other commands wait.
func testFewSessions(t *testing.T, k kind) {
	conn := k.start(t, want{maxSessions: 2}).dial(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"sleep", "0.1"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
