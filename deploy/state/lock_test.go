package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/event"
)

// The test binary is also the other process: with NIXBENCH_TEST_HOLD, it locks that state folder
// and writes to it until its stdin is closed or it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("NIXBENCH_TEST_HOLD"); dir != "" {
		if err := hold(Dir(dir)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(d Dir) error {
	l, err := d.Lock(context.Background(), Self("apply"))
	if err != nil {
		return err
	}
	rec, err := l.Record(RunInfo{Args: []string{"apply"}, Hive: "hive.nix"})
	if err != nil {
		return err
	}
	s, err := l.Store()
	if err != nil {
		return err
	}
	for i := 0; os.Getenv("NIXBENCH_TEST_BUSY") != ""; i++ {
		node := fmt.Sprintf("node-%d", i)
		rec.Result(NodeResult{Node: node, Outcome: Switched})
		if err := s.Begin(Intent{Run: rec.ID(), Node: node, Step: "copy"}); err != nil {
			return err
		}
		fmt.Println(i)
	}
	if err := s.Begin(Intent{Run: rec.ID(), Node: "a", Step: "activate", Path: "/nix/store/x"}); err != nil {
		return err
	}
	rec.Result(NodeResult{Node: "b", Unit: "b", Outcome: Unchanged})
	event.Sink(rec.Event).Send(event.Event{Kind: event.NodeStart, Node: "a", Phase: event.Activate})
	for { // what is printed is on disk already
		if data, _ := os.ReadFile(filepath.Join(rec.folder, "events.jsonl")); len(data) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println(rec.ID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, rec.End(0, nil), l.Unlock())
}

// another starts a process that takes the lock, and returns the id of the run that it records.
func another(t *testing.T, d Dir) (cmd *exec.Cmd, stop io.Closer, run string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "NIXBENCH_TEST_HOLD="+string(d), "USER=alice") // the name comes from the user database
	stop, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatal(line, err)
	}
	return cmd, stop, strings.TrimSpace(line)
}

func folder(t *testing.T) Dir { return Dir(filepath.Join(t.TempDir(), ".nixbench", "demo")) }

func mustLock(t *testing.T, d Dir, command string) *Lock {
	t.Helper()
	l, err := d.Lock(context.Background(), Self(command))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return l
}

func TestLockedErrorNamesTheHolder(t *testing.T) {
	d := folder(t)
	cmd, stop, run := another(t, d)
	begun := time.Now()
	_, err := d.Lock(context.Background(), Self("apply"))
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid || locked.Holder.Command != "apply" {
		t.Fatalf("%#v", err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("told after %s", took)
	}
	host, _ := os.Hostname()
	for _, word := range []string{"locked by nixbench apply: ", fmt.Sprintf("held by %s@%s (pid %d) since ", userName(os.Getuid()), host, cmd.Process.Pid), ":", " UTC"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if h, err := d.Holder(); err != nil || h == nil || h.PID != cmd.Process.Pid {
		t.Error(h, err)
	}
	// Reading needs no lock.
	if s, err := d.Load(); err != nil || len(s.Intents) != 1 {
		t.Error(s, err)
	}
	if r, err := d.OpenRun("last"); err != nil || r.ID != run || r.Status() != StatusRunning {
		t.Error(r, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Lock(ctx, Self("apply")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stop.Close()
	l := waitLock(t, d, "rollback")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if r, err := d.OpenRun(run); err != nil || r.Status() != StatusDone {
		t.Error(r, err)
	}
	for range 2 {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	if h, err := d.Holder(); h != nil || err != nil {
		t.Error(h, err)
	}
	if data, err := os.ReadFile(d.lockFile()); err != nil || len(data) != 0 {
		t.Errorf("%q %v", data, err)
	}
}

func TestAKilledHolder(t *testing.T) {
	d := folder(t)
	cmd, _, run := another(t, d)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if h, err := d.Holder(); h != nil || err != nil {
		t.Error(h, err)
	}
	l := mustLock(t, d, "apply")
	r, err := d.OpenRun("last")
	if err != nil || r.ID != run || r.Status() != StatusKilled {
		t.Fatal(r, err)
	}
	if events, damaged, err := r.Events(); len(events) != 1 || damaged != 0 || err != nil {
		t.Error(events, damaged, err)
	}
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	left := s.State().OpenIntents("next", "a")
	if len(left) != 1 || left[0].Run != run || left[0].Step != "activate" || left[0].Path != "/nix/store/x" {
		t.Errorf("%+v", left)
	}
}

// After a process was killed while writing, every update that it reported is there, and complete.
func TestKilledWhileWriting(t *testing.T) {
	d := folder(t)
	for round := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "NIXBENCH_TEST_HOLD="+string(d), "NIXBENCH_TEST_BUSY=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(50+13*round)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		text, err := io.ReadAll(out)
		_ = cmd.Wait()
		if err != nil || strings.Contains(string(text), "error") {
			t.Fatal(string(text), err)
		}
		told := strings.Count(string(text), "\n")

		l := mustLock(t, d, "apply")
		s, err := l.Store()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.State().Intents); n < told || n > told+1 {
			t.Errorf("%d intents of %d that were begun", n, told)
		}
		if run, err := d.OpenRun("last"); told > 0 && (err != nil || run.Status() != StatusKilled) {
			t.Error(run, err)
		}
		if err := s.Update(func(s *State) error { s.Intents = nil; return nil }); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(string(d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				t.Errorf("%s is left", e.Name())
			}
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// Many processes get the lock one after the other. Asking for the holder does not disturb them.
func TestOneAtATime(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if _, err := d.Holder(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var mu sync.Mutex
	inside, most := 0, 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			l := waitLock(t, d, "apply")
			if l == nil {
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 20 { // the lock is free, but others ask for its holder
		if err := mustLock(t, d, "apply").Unlock(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	asking.Wait()
	if most != 1 {
		t.Errorf("%d at once", most)
	}
}

// A lock on a file that was deleted is not valid.
func TestTheLockFileIsReplaced(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	l, err := d.lock(context.Background(), Self("apply"), func(fd, how int) error {
		if calls++; calls == 1 {
			if err := os.Remove(d.lockFile()); err != nil {
				t.Error(err)
			}
		}
		return unix.Flock(fd, how)
	})
	if err != nil || calls != 2 {
		t.Fatal(err, calls)
	}
	defer l.Unlock()
	if _, err := d.Lock(context.Background(), Self("apply")); err == nil {
		t.Error("locked twice")
	}
}

func TestAFileSystemWithoutLocks(t *testing.T) {
	d := folder(t)
	_, err := d.lock(context.Background(), Self("apply"), func(int, int) error { return unix.ENOLCK })
	var f *FolderError
	if !errors.As(err, &f) || !strings.Contains(err.Error(), string(d)+": its file system cannot lock files") || f.Hint() == "" {
		t.Error(err)
	}
	interrupted := 0
	l, err := d.lock(context.Background(), Self("apply"), func(fd, how int) error {
		if interrupted++; interrupted < 3 {
			return unix.EINTR
		}
		return unix.Flock(fd, how)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

// waitLock takes the lock as soon as it is free. It returns nil after a failure.
func waitLock(t *testing.T, d Dir, command string) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		l, err := d.Lock(ctx, Self(command))
		if err == nil {
			return l
		}
		if locked := (*LockedError)(nil); !errors.As(err, &locked) {
			t.Error(err)
			return nil
		}
	}
}

// A lock on a file that was replaced between open and lock does not count: the new file is locked.
func TestTheLockFileIsReplacedMeanwhile(t *testing.T) {
	d := folder(t)
	replaced := false
	l, err := d.lock(t.Context(), Self("apply"), func(fd, how int) error {
		if !replaced {
			replaced = true
			if err := os.WriteFile(d.lockFile()+".other", nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(d.lockFile()+".other", d.lockFile()); err != nil {
				t.Error(err)
			}
		}
		return unix.Flock(fd, how)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	var locked *LockedError
	if _, err := d.Lock(t.Context(), Self("apply")); !errors.As(err, &locked) {
		t.Errorf("a second process gets the lock: %v", err)
	}
}
