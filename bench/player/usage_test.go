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

// The memory is the largest one since the last call, not that at its time.
func TestReadUsageMemory(t *testing.T) {
	p := exec.Command("bash", "-c", `printf peak-test > /proc/$$/comm; x=$(head -c 60000000 /dev/zero | tr '\0' a); unset x; echo; read -r _`)
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = p.Wait()
	}()
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var memory []int64
	for range 2 {
		u, err := ReadUsage(t.Context(), runHere, []string{"here"}, []string{"peak-test"})
		if err != nil {
			t.Fatal(err)
		}
		memory = append(memory, u["peak-test"].Memory)
	}
	if memory[0] < 60e6 || memory[1] > memory[0]-50e6 {
		t.Errorf("the memory is %v, want at least 60 MB and then less", memory)
	}
}
