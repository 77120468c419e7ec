package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
)

// stuck is an output that no process reads, until it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// A run that is recorded may have a node to uncordon, or keys to restore: it is given time to end
// also if the output is stuck. Another command is ended at once then.
func TestInterruptWithStuckOutput(t *testing.T) {
	for name, test := range map[string]struct {
		recording bool
		exits     bool
	}{
		"a recorded run":  {true, false},
		"another command": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			out := make(stuck)
			a := newApp(ctx, nil)
			a.viewOnce.Do(func() { a.view = ui.New(ui.Options{Out: out, Err: out}) })
			defer a.view.Close()
			defer close(out)
			a.recording.Store(test.recording)
			ended := make(chan struct{})
			time.AfterFunc(reportAfter+viewGrace+time.Second, func() { close(ended) })
			exited := false
			a.watchInterrupt(ended, func(int) { exited = true })
			if exited != test.exits {
				t.Errorf("exit %v, want %v", exited, test.exits)
			}
		})
	}
}

// interrupted [-ok] [-tty] [-says TEXT] MARK COMMAND…: SIGINT and SIGTERM each end the command with exit
// code 130, or with -ok with 0 and without an error. The signal is sent when the command has created the file MARK or, with -tty, printed MARK
// on its terminal. With -says, the command must print TEXT after the signal.
func interruptedCmd(ts *testscript.TestScript, neg bool, args []string) {
	var tty bool
	var says string
	status := exitInterrupted
	if len(args) > 0 && args[0] == "-ok" {
		status, args = exitOK, args[1:]
	}
	if len(args) > 0 && args[0] == "-tty" {
		tty, args = true, args[1:]
	}
	if len(args) > 1 && args[0] == "-says" {
		says, args = args[1], args[2:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupted [-ok] [-tty] [-says TEXT] MARK COMMAND…")
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		interruptOnce(ts, s, status, tty, says, args[0], args[1:])
	}
}

func interruptOnce(ts *testscript.TestScript, s syscall.Signal, status int, tty bool, says, mark string, argv []string) {
	out, err := runUntil(ts, tty, mark, argv, func(cmd *exec.Cmd, _ io.Writer) error { return cmd.Process.Signal(s) })
	if exitStatus(err) != status || !strings.Contains(out, says) || status == exitOK && strings.Contains(out, "error:") {
		ts.Fatalf("%v: the command ended with %v:\n%s", s, err, out)
	}
}

// answered ANSWER STATUS TEXT COMMAND…: runs the command on a terminal, and types ANSWER when it asks a question. The command must end
// with STATUS, and print TEXT.
func answeredCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: answered ANSWER STATUS TEXT COMMAND…")
	}
	out, err := runUntil(ts, true, "[y/N] ", args[3:], func(_ *exec.Cmd, user io.Writer) error {
		_, err := io.WriteString(user, args[0]+"\n")
		return err
	})
	if strconv.Itoa(exitStatus(err)) != args[1] || !strings.Contains(out, args[2]) {
		ts.Fatalf("the command ended with %v:\n%s", err, out)
	}
}

// exitStatus returns the exit status of a command, or -1 if it did not run. err is the error of its end.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// runUntil runs a command until it has created the file mark or, on a terminal, printed mark. It then calls act with the command and
// the keyboard of the terminal, and returns the output of the command and how it ended.
func runUntil(ts *testscript.TestScript, tty bool, mark string, argv []string, act func(*exec.Cmd, io.Writer) error) (string, error) {
	var out screen
	var keyboard io.Writer
	var reading sync.WaitGroup // until the command and the terminal are closed
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), []string{}
	for _, name := range []string{"PATH", "HOME", "NIX_CONFIG", "NIX_PATH", "WORK", "SSH_AUTH_SOCK", "TMPDIR", "SSH_CONFIG_FILE"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	path, err := lookPath(ts.Getenv("PATH"), argv[0])
	ts.Check(err)
	cmd.Path, cmd.Err = path, nil
	cmd.Stdout, cmd.Stderr = &out, &out
	if tty {
		master, slave, err := openTerminal()
		ts.Check(err)
		defer master.Close()
		keyboard = master
		cmd.Env = append(cmd.Env, "TERM=xterm")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		ts.Check(cmd.Start())
		slave.Close()
		reading.Go(func() { _, _ = io.Copy(&out, master) })
	} else {
		_ = os.Remove(ts.MkAbs(mark))
		ts.Check(cmd.Start())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	ready := func() bool {
		if tty {
			return strings.Contains(out.String(), mark)
		}
		_, err := os.Stat(ts.MkAbs(mark))
		return err == nil
	}
	for begun := time.Now(); !ready(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			ts.Fatalf("the command ended too early, %v:\n%s", err, out.String())
		default:
		}
		if time.Since(begun) > 30*time.Second {
			ts.Fatalf("the command did not reach %s within 30s:\n%s", mark, out.String())
		}
	}
	ts.Check(act(cmd, keyboard))
	select {
	case err = <-ended:
	case <-time.After(giveUpAfter / 2): // nixbench has not ended by itself
		ts.Fatalf("the command did not end:\n%s", out.String())
	}
	reading.Wait()
	return out.String(), err
}

func lookPath(path, name string) (string, error) {
	for dir := range strings.SplitSeq(path, ":") {
		if file := filepath.Join(dir, name); unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", name)
}

// screen stores what is written to it.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
	}
	return master, slave, err
}

// silent NETWORK NAME: starts a server that accepts connections, creates the file NAME.asked, and
// never answers. Its address, a port or a socket, is in the environment variable NAME.
func silentCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: silent tcp|unix NAME")
	}
	address := "127.0.0.1:0"
	if args[0] == "unix" {
		dir, err := os.MkdirTemp("", "silent") // the path of a socket must be short
		ts.Check(err)
		ts.Defer(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	l, err := net.Listen(args[0], address)
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		address = strconv.Itoa(a.Port)
	}
	ts.Setenv(args[1], address)
	asked := ts.MkAbs(args[1] + ".asked")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_ = os.WriteFile(asked, nil, 0o600)
		}
	}()
}
