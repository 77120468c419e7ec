package runs

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
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// The test binary is also the other process: with NIXBENCH_TEST_HOLD, it locks that state folder
// and writes to it until its stdin is closed or it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("NIXBENCH_TEST_HOLD"); dir != "" {
		if err := hold(state.Dir(dir)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(d state.Dir) error {
	l, err := d.Lock(context.Background(), state.Self("apply"))
	if err != nil {
		return err
	}
	rec, err := Record(l, Run{Args: []string{"apply"}, Hive: "hive.nix"})
	if err != nil {
		return err
	}
	s, err := l.Store()
	if err != nil {
		return err
	}
	for i := 0; os.Getenv("NIXBENCH_TEST_BUSY") != ""; i++ {
		node := fmt.Sprintf("node-%d", i)
		rec.RecordResult(state.NodeResult{Node: node, Outcome: state.Switched})
		if err := s.Begin(state.Intent{Run: rec.ID(), Node: node, Step: "copy"}); err != nil {
			return err
		}
		fmt.Println(i)
	}
	if err := s.Begin(state.Intent{Run: rec.ID(), Node: "a", Step: "activate", Path: "/nix/store/x"}); err != nil {
		return err
	}
	rec.RecordResult(state.NodeResult{Node: "b", Unit: "b", Outcome: state.Unchanged})
	event.Sink(rec.RecordEvent).Send(event.Event{Kind: event.NodeStart, Node: "a", Phase: event.Activate})
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
func another(t *testing.T, d state.Dir) (cmd *exec.Cmd, stop io.Closer, run string) {
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

func TestLockedErrorNamesTheHolder(t *testing.T) {
	d := folder(t)
	cmd, stop, run := another(t, d)
	begun := time.Now()
	_, err := d.Lock(context.Background(), state.Self("apply"))
	var locked *state.LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid || locked.Holder.Command != "apply" {
		t.Fatalf("%#v", err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("told after %s", took)
	}
	host, _ := os.Hostname()
	for _, word := range []string{"locked by nixbench apply: ", fmt.Sprintf("held by %s@%s (pid %d) since ", state.Self("apply").User, host, cmd.Process.Pid), ":", " UTC"} {
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
	if r, err := Open(d, "last"); err != nil || r.ID != run || r.Status() != StatusRunning {
		t.Error(r, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Lock(ctx, state.Self("apply")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stop.Close()
	l := mustLock(t, d)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if r, err := Open(d, run); err != nil || r.Status() != StatusDone {
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
	if data, err := os.ReadFile(filepath.Join(string(d), "lock")); err != nil || len(data) != 0 {
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
	l := mustLock(t, d)
	r, err := Open(d, "last")
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

		l := mustLock(t, d)
		s, err := l.Store()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.State().Intents); n < told || n > told+1 {
			t.Errorf("%d intents of %d that were begun", n, told)
		}
		if run, err := Open(d, "last"); told > 0 && (err != nil || run.Status() != StatusKilled) {
			t.Error(run, err)
		}
		if err := s.Update(func(s *state.State) error { s.Intents = nil; return nil }); err != nil {
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
