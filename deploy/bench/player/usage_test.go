package player

import (
	"context"
	"io"
	"os/exec"
	"testing"
	"time"
)

func runHere(ctx context.Context, _ string, stdin io.Reader, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = stdin
	return cmd.Output()
}

// The script finds a process by its name, also one whose name the kernel has cut, and its processor time.
func TestReadUsage(t *testing.T) {
	for shell, program := range map[string]string{"sh": "kube-controller-manager", "bash": "kube-contr?l*"} {
		busy := exec.Command(shell, "-c", "printf 'a program (with) blanks' > /proc/$$/comm; printf kube-controller > /proc/$$/comm; end=$(($(date +%s) + 20)); while [ \"$(date +%s)\" -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		var u map[string]Usage
		var err error
		for range 100 {
			u, err = ReadUsage(t.Context(), runHere, []string{"here", "here"}, []string{program, "no-such-program"})
			if err != nil || u[program].CPU >= 0.1 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		_ = busy.Process.Kill()
		_ = busy.Wait()
		if got := u[program]; err != nil || got.CPU < 0.1 || got.CPU > 30 || got.Memory < 100<<10 || len(u) != 1 {
			t.Errorf("%s: %+v, %v", shell, u, err)
		}
	}
}

func TestParseUsage(t *testing.T) {
	name, u, err := parseUsage("etcd|2048|12 (et) cd) S 1 12 12 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 1 1 1")
	if err != nil || name != "etcd" || u != (Usage{CPU: 2, Memory: 2 << 20}) {
		t.Errorf("%s, %+v, %v", name, u, err)
	}
	for _, line := range []string{"", "etcd|1", "etcd|x|1 (e) S 1 1 1 1 1 1 1 1 1 1 1 1 1", "etcd|1|1 (e) S 1", "etcd|1|1 (e) S 1 1 1 1 1 1 1 1 1 1 a b 1"} {
		if _, _, err := parseUsage(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}
