package player

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A task stamps its first and last instruction with sh and bash, also if other tasks append to the same file and the output has other lines.
// It keeps its exit status.
func TestStampScript(t *testing.T) {
	for _, shell := range []string{"sh", "bash"} {
		file := filepath.Join(t.TempDir(), "stamps")
		if err := os.WriteFile(file, []byte("a line\nnixbench first b 0 now\n2026-11-28T15:00:00Z stdout F nixbench last c 0 5.000000\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(shell, "-c", StampScript("${JOB}_1", "${TASK:-0}", "sleep 0.1; (exit 3)", " >> "+file))
		cmd.Env = append(os.Environ(), "JOB=7", "TASK=4")
		begun := time.Now()
		_ = cmd.Run()
		ended := time.Now()
		out, err := os.ReadFile(file)
		if err != nil || cmd.ProcessState.ExitCode() != 3 {
			t.Fatalf("%s: %v, %v", shell, cmd.ProcessState, err)
		}
		stamps := parseStamps(string(out))
		if len(stamps) != 3 || stamps[0] != (stamp{Last, "c", 0, time.Unix(5, 0)}) {
			t.Fatalf("%s: %+v", shell, stamps)
		}
		first, last := stamps[1], stamps[2]
		if first.kind != Start || last.kind != Last || first.job != "7_1" || last.job != "7_1" || first.task != 4 ||
			first.at.Before(begun.Truncate(time.Microsecond)) || last.at.Sub(first.at) < 100*time.Millisecond || last.at.After(ended) {
			t.Errorf("%s: %+v between %v and %v", shell, stamps[1:], begun, ended)
		}
	}
}
