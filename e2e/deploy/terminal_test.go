package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/e2e/lab"
)

// terminal is a run of nixbench on a pseudo-terminal, whose other end the test reads and writes.
type terminal struct {
	*exec.Cmd
	s      *sandbox
	master *os.File

	mu     sync.Mutex
	screen strings.Builder
	ended  chan struct{}
}

func (s *sandbox) startOnTerminal(args ...string) *terminal {
	s.Helper()
	master, slave := pty(s)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.Cleanup(cancel)
	t := &terminal{Cmd: s.l.Command(ctx, program, args...), s: s, master: master, ended: make(chan struct{})}
	t.Dir, t.Env, t.Stdin, t.Stdout, t.Stderr = s.dir, s.env, slave, slave, slave
	t.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.before = s.eventFiles()
	if err := t.Start(); err != nil {
		s.Fatal(err)
	}
	slave.Close()
	go func() {
		defer close(t.ended)
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			t.mu.Lock()
			t.screen.Write(buffer[:n])
			t.mu.Unlock()
			if err != nil { // EIO: all processes have closed the other end
				return
			}
		}
	}()
	return t
}

func pty(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// shows returns all that was printed on the terminal.
func (t *terminal) shows() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// answer waits until the question was printed so many times and the terminal's echo is off, and
// writes the answer.
func (t *terminal) answer(question string, times int, text string) {
	t.s.Helper()
	defer func() {
		if t.s.Failed() {
			t.s.Logf("on the terminal:\n%s", t.shows())
		}
	}()
	t.s.waitFor(20*time.Second, fmt.Sprintf("%q, %d times", question, times), func() bool {
		mode, err := unix.IoctlGetTermios(int(t.master.Fd()), unix.TCGETS)
		return strings.Count(t.shows(), question) >= times && err == nil && mode.Lflag&unix.ECHO == 0
	})
	if _, err := t.master.WriteString(text + "\n"); err != nil {
		t.s.Fatal(err)
	}
}

func (t *terminal) end() runResult {
	t.s.Helper()
	t.Wait()
	<-t.ended
	t.s.Logf("on the terminal:\n%s", t.shows())
	return runResult{out: t.shows(), code: t.ProcessState.ExitCode()}
}

// If a user's sudo needs a password, nixbench asks for it once for each node.
func TestSudoOnTerminal(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	const password, question = "correct horse", "sudo password of askpass on "
	for _, node := range []string{"m1", "m2"} {
		s.runOn(node, "usermod -aG nix-users askpass; sed -i 's/^trusted-users = .*/& askpass/' /etc/nix/nix.conf; systemctl restart nix-daemon")
	}
	write := func(text string) {
		const user = `deployment.targetUser = "askpass"; deployment.privilegeEscalationCommand = [ "sudo" "-H" "--" ];`
		s.writeHive(fmt.Sprintf(`m1 = { imports = [ (which "%s") ]; deployment.keys.k = { text = "t0ps3cret"; permissions = "0400"; }; %s };
			m2 = { imports = [ (which "%[1]s") ]; %[2]s };`, text, user))
	}
	write("one")
	p := s.startOnTerminal("apply")
	p.answer(question, 1, "battery staple") // wrong, so it is asked for again
	p.answer(question, 2, password)
	p.answer(question, 3, password)
	got := p.end()
	if got.code != 0 {
		t.Fatalf("exit %d", got.code)
	}
	s.says(got, question+"m1: ", question+"m2: ", "wrong password, again: "+question, "2 switched")
	s.saysNot(got, password, "battery staple", "t0ps3cret")
	if n := strings.Count(got.out, question); n != 3 {
		t.Errorf("%d questions for two nodes and one wrong answer, want 3", n)
	}
	s.checkWhich("m1=one", "m2=one")
	if got := s.runOn("m1", "cat /run/keys/k; stat -c ' %a %U' /run/keys/k"); got != "t0ps3cret 400 root" {
		t.Errorf("key: %s", got)
	}
	s.checkNothingLeft("m1", "m2")
	for _, node := range []string{"m1", "m2"} {
		if got := s.runOn(node, `journalctl -q --no-pager | grep -cF -e "correct horse" -e t0ps3cret || :`); got != "0" {
			t.Errorf("%s: a secret is in the journal", node)
		}
	}
	if got, err := exec.Command("grep", "-rlF", password, s.stateFile("")).CombinedOutput(); err == nil {
		t.Errorf("the password is in %s", got)
	}

	// After three wrong answers nixbench fails, and the node is unchanged.
	write("two")
	p = s.startOnTerminal("apply", "--on", "m1")
	for i := range 3 {
		p.answer(question, i+1, "no idea")
	}
	got = p.end()
	if got.code != 6 {
		t.Errorf("exit %d, want 6", got.code)
	}
	s.says(got, "error: m1: ", "sudo")
	s.checkWhich("m1=one")
}
