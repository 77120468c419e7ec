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

// terminal is a run of the program on a terminal, with somebody in front of it.
type terminal struct {
	*exec.Cmd
	s      *site
	master *os.File

	mu     sync.Mutex
	screen strings.Builder
	ended  chan struct{}
}

func (s *site) onTerminal(args ...string) *terminal {
	s.Helper()
	master, slave := pty(s)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.Cleanup(cancel)
	t := &terminal{Cmd: s.l.Command(ctx, program, args...), s: s, master: master, ended: make(chan struct{})}
	t.Dir, t.Env, t.Stdin, t.Stdout, t.Stderr = s.dir, s.env, slave, slave, slave
	t.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.before = s.runs()
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
			if err != nil { // EIO: nobody has the other end any more
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

func (t *terminal) shows() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// answers waits until a question has come so many times, and for the echo to be off.
func (t *terminal) answers(question string, times int, answer string) {
	t.s.Helper()
	defer func() {
		if t.s.Failed() {
			t.s.Logf("on the terminal:\n%s", t.shows())
		}
	}()
	t.s.wait(20*time.Second, fmt.Sprintf("%q, %d times", question, times), func() bool {
		mode, err := unix.IoctlGetTermios(int(t.master.Fd()), unix.TCGETS)
		return strings.Count(t.shows(), question) >= times && err == nil && mode.Lflag&unix.ECHO == 0
	})
	if _, err := t.master.WriteString(answer + "\n"); err != nil {
		t.s.Fatal(err)
	}
}

func (t *terminal) end() said {
	t.s.Helper()
	t.Wait()
	<-t.ended
	t.s.Logf("on the terminal:\n%s", t.shows())
	return said{out: t.shows(), code: t.ProcessState.ExitCode()}
}

// Users whose sudo wants a password are asked for it, once for each node.
func TestSudoOnTerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	const password, question = "correct horse", "sudo password of askpass on "
	for _, node := range []string{"m1", "m2"} {
		s.on(node, "usermod -aG nix-users askpass; sed -i 's/^trusted-users = .*/& askpass/' /etc/nix/nix.conf; systemctl restart nix-daemon")
	}
	write := func(text string) {
		const user = `deployment.targetUser = "askpass"; deployment.privilegeEscalationCommand = [ "sudo" "-H" "--" ];`
		s.hive(fmt.Sprintf(`m1 = { imports = [ (which "%s") ]; deployment.keys.k = { text = "t0ps3cret"; permissions = "0400"; }; %s };
			m2 = { imports = [ (which "%[1]s") ]; %[2]s };`, text, user))
	}
	write("one")
	p := s.onTerminal("apply")
	p.answers(question, 1, "battery staple") // then it asks for either
	p.answers(question, 2, password)
	p.answers(question, 3, password)
	got := p.end()
	if got.code != 0 {
		t.Fatalf("exit %d", got.code)
	}
	s.says(got, question+"m1: ", question+"m2: ", "wrong password, again: "+question, "2 switched")
	s.saysNot(got, password, "battery staple", "t0ps3cret")
	if n := strings.Count(got.out, question); n != 3 {
		t.Errorf("it asked %d times for two nodes, once wrong", n)
	}
	s.is("m1=one", "m2=one")
	if got := s.on("m1", "cat /run/keys/k; stat -c ' %a %U' /run/keys/k"); got != "t0ps3cret 400 root" {
		t.Errorf("key: %s", got)
	}
	s.settled("m1", "m2")
	for _, node := range []string{"m1", "m2"} {
		if got := s.on(node, `journalctl -q --no-pager | grep -cF -e "correct horse" -e t0ps3cret || :`); got != "0" {
			t.Errorf("%s: a secret is in the journal", node)
		}
	}
	if got, err := exec.Command("grep", "-rlF", password, s.stateFile("")).CombinedOutput(); err == nil {
		t.Errorf("the password is in %s", got)
	}

	// Whoever does not know it gives up, and nothing has changed.
	write("two")
	p = s.onTerminal("apply", "--on", "m1")
	for i := range 3 {
		p.answers(question, i+1, "no idea")
	}
	got = p.end()
	if got.code != 6 {
		t.Errorf("exit %d, want 6", got.code)
	}
	s.says(got, "error: m1: ", "sudo")
	s.is("m1=one")
}
