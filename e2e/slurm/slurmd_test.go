package slurm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// hollow is the script that runs the slurmd of many hollow nodes, with a stand-in for slurmd.
type hollow struct {
	*testing.T
	started string // a file with the process ids of all slurmd that were started
	cmd     *exec.Cmd
	lines   chan string // of its messages
	ended   chan struct{}
}

// newHollow starts the script. slurmd is a command that the stand-in executes before it waits for a signal.
func newHollow(t *testing.T, nodes int, slurmd string) *hollow {
	t.Helper()
	fixture.Require(t, "nix", "bash")
	folder := t.TempDir()
	module, err := filepath.Abs("../../modules/slurm/hollow.nix")
	if err != nil {
		t.Fatal(err)
	}
	h := &hollow{t, filepath.Join(folder, "started"), nil, make(chan string, 1000), make(chan struct{})}
	program := filepath.Join(folder, "slurmd")
	text := "#!/bin/bash\ncd " + folder + " || exit\necho $$ >> started\n" + slurmd + "\nexec sleep 60\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	expression := fmt.Sprintf(`(import %s {
		count = %d;
		slurmd = "%s";
		lib.makeBinPath = _: "/usr/bin:/bin";
		pkgs = { coreutils = null; writeShellScript = _: text: text; };
	}).start`, module, nodes, program)
	var script string
	if err := json.Unmarshal(runNix(t, exec.Command("nix-instantiate", "--eval", "--json", "--strict", "--expr", expression)), &script); err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command("bash", "-c", script, "hollow", "--conf", "Feature=a")
	diag, err := h.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for scanner := bufio.NewScanner(diag); scanner.Scan(); {
			h.lines <- scanner.Text()
		}
		_ = h.cmd.Wait() // the status is that of the last command of the script
		close(h.ended)
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		for _, pid := range h.slurmd() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return h
}

// slurmd returns the process ids of all slurmd that were started.
func (h *hollow) slurmd() []int {
	h.Helper()
	data, err := os.ReadFile(h.started)
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	var pids []int
	for _, text := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			h.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// await waits until a number of slurmd were started.
func (h *hollow) await(n int) {
	h.Helper()
	for end := time.Now().Add(20 * time.Second); len(h.slurmd()) < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("%d slurmd were started, want %d", len(h.slurmd()), n)
		}
	}
}

// stop ends the script as systemd does, and checks that no slurmd runs: systemd would not end it, and its port would be in use.
func (h *hollow) stop() {
	h.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.Fatal(err)
	}
	select {
	case <-h.ended:
	case <-time.After(10 * time.Second):
		h.Error("the script runs ten seconds after SIGTERM")
	}
	for _, pid := range h.slurmd() {
		if syscall.Kill(pid, 0) == nil {
			h.Errorf("process %d, a slurmd, still runs", pid)
		}
	}
}

// Many slurmd that end at once are all started again, and all end with the unit.
func TestRestartHollow(t *testing.T) {
	h := newHollow(t, 40, "")
	h.await(40)
	for _, pid := range h.slurmd()[:30] {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	h.await(70)
	h.stop()
}

// The unit stops while a slurmd that has ended waits to be started again.
func TestStopHollow(t *testing.T) {
	h := newHollow(t, 3, "[[ $3 = *-h2 ]] && mkdir again 2> /dev/null && exit 1")
	if line := <-h.lines; !strings.HasSuffix(line, "-h2 has ended; it starts again") {
		t.Fatal(line)
	}
	h.await(3)
	h.stop()
	if n := len(h.slurmd()); n != 3 {
		t.Errorf("%d slurmd were started, want 3", n)
	}
}
