package flux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench/workload"
)

// Clean cancels the jobs of the instance's owner, with few commands also if there are many.
func TestClean(t *testing.T) {
	f := newFake(t)
	state := filepath.Dir(f.folder)
	for i := range 1200 {
		if err := os.WriteFile(filepath.Join(state, "jobs", fmt.Sprint(1000+i)), []byte("inf"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.player().Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(state, "jobs", "*"))
	if err != nil || len(files) != 1200 {
		t.Fatalf("%d jobs, %v", len(files), err)
	}
	for _, file := range files {
		if end, err := os.ReadFile(file); err != nil || string(end) != "0" {
			t.Fatalf("%s ends at %q, %v", filepath.Base(file), end, err)
		}
	}
	commands, err := os.ReadFile(filepath.Join(state, "cancels"))
	if n := strings.Count(string(commands), "\n"); err != nil || n > 2 {
		t.Errorf("%d commands, %v", n, err)
	}
}

// If the leader cannot be reached for a moment while no job has events, Play goes on.
func TestLostCheck(t *testing.T) {
	f := newFake(t)
	lost := 0
	for _, program := range []string{"sh", "systemctl"} {
		f.answer[program] = func(int) (string, error) {
			lines, _ := os.ReadFile(filepath.Join(f.folder, "lines"))
			if !strings.Contains(string(lines), "submit") || strings.Contains(string(lines), "finish") {
				return "", nil
			}
			lost++
			return "", errors.New("connection lost")
		}
	}
	if _, err := play(t, f, workload.Job{ID: "a", Runtime: 0.5}); err != nil || lost == 0 {
		t.Errorf("%d lost checks, %v", lost, err)
	}
}
