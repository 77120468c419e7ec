package deployments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitFor polls until ok returns true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("waited 5 s for %s", what)
		}
	}
}

// The tests in this file need root and an unrestricted kernel, so they are skipped elsewhere.

func TestTracer(t *testing.T) {
	tracer, err := startTracer(nil)
	if err != nil {
		t.Skip(err)
	}
	defer tracer.stop()
	before, _ := tracer.read()
	end := tracer.traceChildren()
	if err := exec.Command("sh", "-c", "/bin/true; /bin/true; (:)").Run(); err != nil {
		t.Fatal(err)
	}
	programs := func() int {
		counts, _ := tracer.read()
		return counts[0].programs - before[0].programs
	}
	waitFor(t, "three programs", func() bool { return programs() >= 3 })
	// Not before: the tracer may read the event of the first process late.
	end()
	if err := exec.Command("true").Run(); err != nil { // not traced
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if got := programs(); got != 3 {
		t.Errorf("%d programs, want 3: sh and twice true", got)
	}
}

func TestOpenCounter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "text")
	c, err := watchOpens(file)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if out, err := exec.Command("sh", "-c", `cat "$1"; cat "$1"; stat "$1"`, "sh", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	waitFor(t, "two opens", func() bool { return c.count.Load() >= 2 })
	time.Sleep(100 * time.Millisecond)
	if got := c.count.Load(); got != 2 {
		t.Errorf("%d opens, want 2", got)
	}
}

// A process that has ended, but was not waited for, still has its I/O accounting, with that of its children.
func TestBytesRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, strings.Repeat("x", 5_000_000))
	cmd := exec.Command("sh", "-c", `sh -c 'cat "$1" >/dev/null' sh "$1"; :`, "sh", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := waitForEnd(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	got, err := readBytesRead(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	if got < 5_000_000 || got > 6_000_000 {
		t.Errorf("%.0f bytes, want little more than 5,000,000", got)
	}
}

func TestParseBytesRead(t *testing.T) {
	if got, err := parseBytesRead("rchar: 4711\nwchar: 1\nread_bytes: 0\n"); err != nil || got != 4711 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseBytesRead("wchar: 1\n"); err == nil {
		t.Error("a text without rchar is accepted")
	}
}

func TestLoad(t *testing.T) {
	stop, err := startLoad(2)
	if err != nil {
		t.Fatal(err)
	}
	loops := func() int {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", os.Getpid(), os.Getpid()))
		if err != nil {
			t.Skip(err)
		}
		all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
		text := string(children)
		for _, file := range all {
			more, _ := os.ReadFile(file)
			text += " " + string(more)
		}
		found := map[string]bool{}
		for _, pid := range strings.Fields(text) {
			cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.Contains(string(cmdline), "while :;") {
				found[pid] = true
			}
		}
		return len(found)
	}
	waitFor(t, "two busy loops", func() bool { return loops() == 2 })
	stop()
	if got := loops(); got != 0 {
		t.Errorf("%d busy loops still run", got)
	}
}

func TestWaitQuietEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := waitQuiet(ctx, hierarchy{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
