package player

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The script returns at once if the file has more bytes, and otherwise after a second.
func TestWaitScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for offset, least := range map[string]time.Duration{"0": 0, "4": 900 * time.Millisecond} {
		begun := time.Now()
		_ = exec.Command("bash", "-c", waitScript, "bash", file, offset).Run()
		if took := time.Since(begun); took < least || took > least+600*time.Millisecond {
			t.Errorf("after %s bytes, it waited for %v", offset, took)
		}
	}
}
