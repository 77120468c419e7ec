package secrets

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
)

func TestShellcheck(t *testing.T) {
	if problems := fixture.Shellcheck(t, script, "--shell=sh", "-"); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}
}

// The number of programs that the node starts does not depend on the number of keys, except that each changed key
// is moved to its path.
func TestPrograms(t *testing.T) {
	program := regexp.MustCompile(`(?m)^\++ (cat|chmod|chown|cp|cut|find|getent|grep|head|mkdir|mv|rm|sha256sum|stat|sync|systemctl|tar|tr)\b`)
	count := func(size int) (first, unchanged, changed map[string]int) {
		n := start(t, sshtest.Options{})
		run := func(text string) map[string]int {
			ks := keys{}
			for i := range size {
				name := fmt.Sprint("k", i)
				ks[name] = n.key(t, name, name+text, mode([]string{"0400", "0440"}[i%2]))
			}
			set := n.load(t, ks, All)
			started := map[string]int{}
			for _, found := range program.FindAllStringSubmatch(n.trace(t, set), -1) {
				started[found[1]]++
			}
			return started
		}
		return run("old"), run("old"), run("new")
	}
	first2, unchanged2, changed2 := count(2)
	first, unchanged, changed := count(30)
	for _, s := range []struct {
		what      string
		few, many map[string]int
		moves     int // of keys
	}{{"new keys", first2, first, 30}, {"unchanged keys", unchanged2, unchanged, 0}, {"changed keys", changed2, changed, 30}} {
		t.Logf("%s: %v", s.what, s.many)
		if s.moves > 0 {
			s.many["mv"] -= s.moves - 2
		}
		if diff := cmp.Diff(s.few, s.many); diff != "" {
			t.Errorf("%s: 2 and 30 keys start different programs:\n%s", s.what, diff)
		}
	}
	if unchanged["sha256sum"] != 1 || unchanged["stat"] != 1 || changed["tar"] != 1 || changed["mv"] != 2 {
		t.Errorf("unchanged: %v, changed: %v", unchanged, changed)
	}
}

// trace uploads a set without a connection, and returns the commands that the shell has executed.
func (n *node) trace(t *testing.T, set Set) string {
	t.Helper()
	fixture.Require(t, "bash")
	argv := n.scriptCommand("apply", Drop, false)
	cmd := exec.Command("bash", append([]string{"--posix", "-x"}, argv[1:]...)...)
	trace, err := os.Create(filepath.Join(t.TempDir(), "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	cmd.ExtraFiles = slices.Repeat([]*os.File{trace}, 7) // file descriptors 3 to 9
	cmd.Env = append(os.Environ(), "BASH_XTRACEFD=9")    // stderr is redirected by the script
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := (&keyExchange{set: set, to: bufio.NewWriter(stdin), from: bufio.NewScanner(stdout)}).run("apply")
	stdin.Close()
	io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil || said != nil {
		t.Fatalf("%v, %v\n%s", err, said, stderr.String())
	}
	text, err := os.ReadFile(trace.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
