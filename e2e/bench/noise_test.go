package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// The run times of the jobs during which noise is planted. They identify their processes.
const (
	pausedJob    = "8.25"
	disturbedJob = "8.5"
)

// A container that is paused during a trial, and whose process is stopped, makes it invalid, and so does a busy neighbour, which the reason names. Both trials are repeated at the end
// of the block.
func TestNoise(t *testing.T) {
	c := newCluster(t)
	c.writeHive(`{
    noise = {
      matrix.workload = [ "paused" "disturbed" ];
      workloads.paused = { jobs = [ { id = "a"; runtime = `+pausedJob+`; } ]; timeLimit = "2m"; };
      workloads.disturbed = { jobs = [ { id = "a"; runtime = `+disturbedJob+`; } ]; timeLimit = "2m"; };
      repetitions = 1;
      retries = 1;
      reset = "clean";
      pause = 0;
      quiet = { steal = 1; foreignCpu = 0.7; psiCpu = 1; canary = 1000; swapPages = 1000000; kernelMessages = 1000; clock = 10; };
    };
  }`, "")
	neighbour := newNeighbour(t)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.plantNoise(ended, neighbour)
	}()
	code, stdout, stderr := c.Try("bench", "run", "--unpinned")
	close(ended)
	<-done
	t.Logf("nixbench bench run ends with %d:\n%s%s", code, stdout, stderr)
	s := c.show("--trials")
	attempts := s.Get("attempts").Array()
	if len(attempts) != 4 {
		t.Fatalf("%d attempts, want 2 of each trial: %s", len(attempts), s.Get("attempts"))
	}
	var firstEnded, againBegan time.Time
	for _, trial := range s.Get("sweep.trials").Array() {
		tries := slices.DeleteFunc(slices.Clone(attempts), func(a gjson.Result) bool { return a.Get("trial").Int() != trial.Get("number").Int() })
		if len(tries) != 2 {
			t.Fatalf("trial %s has %d attempts", trial, len(tries))
		}
		if ended := tries[0].Get("ended").Time(); ended.After(firstEnded) {
			firstEnded = ended
		}
		if began := tries[1].Get("began").Time(); againBegan.IsZero() || began.Before(againBegan) {
			againBegan = began
		}
		want := "the machine compute-1 was paused"
		if trial.Get("cell.workload").String() == "paused" && !strings.Contains(tries[0].Get("reasons").String(), "the machine compute-1 was stopped") {
			t.Errorf("the process of compute-1 was not observed: %s", tries[0].Get("reasons"))
		}
		if trial.Get("cell.workload").String() == "disturbed" {
			want = " neighbour"
		}
		t.Logf("%s: %s, then %s, noise %s", trial.Get("cell.workload"), tries[0].Get("reasons"), tries[1].Get("reasons"), tries[0].Get("noise.foreignCPU"))
		if tries[0].Get("state").String() != "invalid" || !strings.Contains(tries[0].Get("reasons").String(), want) {
			t.Errorf("the first attempt of %s is %s: %s, want a reason with %q", trial, tries[0].Get("state"), tries[0].Get("reasons"), want)
		}
		// Other programs of this computer can use its processors, too.
		again := tries[1].Get("reasons").String()
		if strings.Contains(again, want) || tries[1].Get("state").String() == "invalid" && !strings.Contains(again, "foreign processes used") {
			t.Errorf("the second attempt of %s is %s: %s", trial, tries[1].Get("state"), again)
		}
	}
	if againBegan.Before(firstEnded) {
		t.Errorf("a trial was repeated at %v, before the block ended at %v", againBegan, firstEnded)
	}
	_, csv, _ := c.Try("bench", "export", "--format", "csv")
	if !strings.Contains(csv, "the machine compute-1 was paused") || !strings.Contains(csv, ",noise foreign_cpu,") {
		t.Errorf("the CSV has no reasons or no figures of noise:\n%.2000s", csv)
	}
}

// newNeighbour returns a copy of the shell with the name neighbour.
func newNeighbour(t *testing.T) string {
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "neighbour")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// plantNoise disturbs the first attempt of each trial, when its job runs, until the sweep has ended.
func (c *cluster) plantNoise(ended <-chan struct{}, neighbour string) {
	planted := map[string]bool{}
	for len(planted) < 2 {
		select {
		case <-ended:
			c.Errorf("noise was planted only in the trials with the jobs %v", planted)
			return
		case <-time.After(100 * time.Millisecond):
		}
		switch {
		case !planted[pausedJob] && hasProcess(pausedJob):
			planted[pausedJob] = true
			c.Logf("%v: pausing compute-1", time.Now())
			c.virsh("suspend", "bench-compute-1")
			time.Sleep(3 * time.Second)
			c.virsh("resume", "bench-compute-1")
			c.signalMachine("bench-compute-1", syscall.SIGSTOP) // a process of a suspended machine is frozen, and does not stop
			time.Sleep(3 * time.Second)
			c.signalMachine("bench-compute-1", syscall.SIGCONT)
		case !planted[disturbedJob] && hasProcess(disturbedJob):
			planted[disturbedJob] = true
			c.Logf("%v: starting neighbours", time.Now())
			for range 8 * runtime.NumCPU() { // more than other programs of this computer
				busy := exec.Command(neighbour, "-c", "while :; do :; done")
				if err := busy.Start(); err != nil {
					c.Error(err)
					return
				}
				defer func() {
					_ = busy.Process.Kill()
					_ = busy.Wait()
				}()
			}
			time.Sleep(7 * time.Second)
		}
	}
}

// virsh runs virsh, and returns what it prints.
func (c *cluster) virsh(args ...string) string {
	out, err := c.Lab.Command(c.Context(), "virsh", append([]string{"-q", "-c", c.Lab.URIs["lxc"]}, args...)...).CombinedOutput()
	if err != nil {
		c.Errorf("virsh %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// signalMachine sends a signal to the process of a container. The hypervisor does not see that this process is stopped.
func (c *cluster) signalMachine(name string, signal syscall.Signal) {
	own := regexp.MustCompile(`(?m)^NSpid:.*\t` + c.virsh("domid", name) + `$`) // libvirtd may be in a PID namespace
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		argv, _ := os.ReadFile(file)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if !strings.Contains(string(argv), "libvirt_lxc\x00--name\x00"+name+"\x00") || !own.Match(status) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = syscall.Kill(pid, signal)
		}
		if err != nil {
			c.Error(err)
		}
		return
	}
	c.Errorf("%s has no process", name)
}

// hasProcess reports whether a process whose last argument is this text runs on this computer, also in a container.
func hasProcess(last string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.HasSuffix(string(data), "\x00"+last+"\x00")
	})
}
