package player

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The processor time of a command counts after it has ended, and the connection is the process that is named sshd.
func TestReadCommandUsage(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	sshd := filepath.Join(t.TempDir(), "sshd-session")
	if err := os.Symlink(shell, sshd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	connection := exec.CommandContext(ctx, sshd) // runs each line that it reads
	in, errIn := connection.StdinPipe()
	out, errOut := connection.StdoutPipe()
	if err := errors.Join(errIn, errOut, connection.Start()); err != nil {
		t.Fatal(err)
	}
	run := func(_ context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
		script, err := io.ReadAll(stdin)
		if err != nil || node != "head" {
			t.Errorf("%s, %v", node, err)
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, script, 0o600); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(in, strings.Join(argv, " ")+" < "+file+"; echo end\n"); err != nil {
			return nil, err
		}
		var all strings.Builder
		for b := make([]byte, 1); !strings.HasSuffix(all.String(), "end\n"); {
			if _, err := out.Read(b); err != nil {
				return nil, err
			}
			all.Write(b)
		}
		return []byte(strings.TrimSuffix(all.String(), "end\n")), nil
	}
	before, err := ReadCommandUsage(ctx, run, "head")
	if err != nil || before.Connection != connection.Process.Pid {
		t.Fatalf("%+v, %v; sshd is %d", before, err, connection.Process.Pid)
	}
	busy := "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done"
	if _, err := run(ctx, "head", strings.NewReader(busy), "sh", "-s"); err != nil {
		t.Fatal(err)
	}
	after, err := ReadCommandUsage(ctx, run, "head")
	if used := after.CPU - before.CPU; err != nil || after.Connection != before.Connection || used < 0.1 || used > 30 {
		t.Errorf("%v s, %v", used, err)
	}
	_ = in.Close()
	_ = connection.Wait()
}

func TestSumStats(t *testing.T) {
	got, err := sumStats("9 (sh) S 7 9 9 0 -1 1 1 1 1 1 1 2 3 4 20 0\n7 (sshd: a) S 1 9 9 0 -1 1 1 1 1 1 10 20 30 40 20 0\n")
	if want := (CommandUsage{Connection: 7, CPU: 1.1}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "7 (sshd) S 1\n", "x (sshd) S 7 9 9 0 -1 1 1 1 1 1 1 2 3 4\n", "7 (sshd) S 7 9 9 0 -1 1 1 1 1 1 1 2 3 x\n"} {
		if u, err := sumStats(text); err == nil {
			t.Errorf("%q: %+v", text, u)
		}
	}
}
