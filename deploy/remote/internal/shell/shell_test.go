package shell_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/remote/internal/shell"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// FuzzLine compares what a real shell makes of a line with what went in, and
// what ParseLine reads back.
func FuzzLine(f *testing.F) {
	for _, arg := range []string{"", "a b", "'", `"`, "\n", "$(id)", "`id`", ";", "-n", "é\xff", `\`, "*", "~", "!", "a=b"} {
		f.Add(arg, "x"+arg)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, argv := range [][]string{
			{"printf", `%s\0`, a, b},
			{"sh", "-c", `printf '%s\0' "$@"`, "name", a, b},
			{"bash", "-c", "\nprintf '%s\\0' \"$0\" \"$@\"", a, b},
		} {
			checkLine(t, argv, a, b)
		}
	})
}

func checkLine(t *testing.T, argv []string, a, b string) {
	if strings.IndexByte(a+b, 0) >= 0 {
		if shell.Check(argv) == nil {
			t.Fatal("a NUL byte passed Check")
		}
		return
	}
	line := shell.Line(shell.Announce("m", argv))
	cmd := exec.Command("sh", "-c", line)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if want := stderr.String() + a + "\x00" + b + "\x00"; stdout.String() != want {
		t.Fatalf("sh made %q of %q, want %q", &stdout, line, want)
	}
	got, marks, _ := sshtest.ParseLine(line)
	if !slices.Equal(got, argv) || !slices.Equal(marks, []string{"m"}) {
		t.Fatalf("ParseLine(%q) = %q, %q", line, got, marks)
	}
	if stderr.String() == "" || strings.Count(stderr.String(), "\n") != 1 {
		t.Fatalf("announced %q", &stderr)
	}
}

// A script that is the command is announced by the same shell, with its own process id.
func TestScriptIsAnnouncedByItsShell(t *testing.T) {
	cmd := exec.Command("sh", "-c", shell.Line(shell.Announce("m", []string{"bash", "-c", `echo "m:$$"; exit 7`})))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		t.Fatal(err)
	}
	if stdout.String() != strings.Repeat(stderr.String(), 2) {
		t.Errorf("announced %q, ran as %q", &stderr, &stdout)
	}
	if argv, marks, _ := sshtest.ParseLine(shell.Line(shell.Announce("m", []string{"sh", "-c", "id"}))); !slices.Equal(argv, []string{"sh", "-c", "id"}) || !slices.Equal(marks, []string{"m"}) {
		t.Errorf("a script without arguments: %q, %q", argv, marks)
	}
	inner := shell.Announce("in", []string{"bash", "-c", "id", "name", "arg"})
	argv, marks, escalation := sshtest.ParseLine(shell.Line(shell.Announce("out", append([]string{"sudo", "-n", "--"}, inner...))))
	if !slices.Equal(argv, []string{"bash", "-c", "id", "name", "arg"}) ||
		!slices.Equal(marks, []string{"out", "in"}) || !slices.Equal(escalation, []string{"sudo", "-n", "--"}) {
		t.Errorf("argv %q, marks %q, escalation %q", argv, marks, escalation)
	}
}

func TestParseLineWithEscalation(t *testing.T) {
	inner := shell.Announce("in", []string{"id", "-u"})
	line := shell.Line(shell.Announce("out", append([]string{"sudo", "-n", "-H", "--"}, inner...)))
	argv, marks, escalation := sshtest.ParseLine(line)
	if !slices.Equal(argv, []string{"id", "-u"}) || !slices.Equal(marks, []string{"out", "in"}) ||
		!slices.Equal(escalation, []string{"sudo", "-n", "-H", "--"}) {
		t.Errorf("argv %q, marks %q, escalation %q", argv, marks, escalation)
	}
}

// A first word that a shell would take for something else stays a program.
func TestFirstWordIsAProgram(t *testing.T) {
	for _, word := range []string{"if", "A=b", "!", "{", "cd"} {
		err := exec.Command("sh", "-c", shell.Line(shell.Announce("m", []string{word}))).Run()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 127 {
			t.Errorf("%q: %v, want status 127", word, err)
		}
	}
}
