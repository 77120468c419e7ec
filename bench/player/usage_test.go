package player

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
)

// readUsage returns the usage of programs on two nodes.
func readUsage(t *testing.T, run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error), programs ...string) (map[string]Usage, error) {
	r := Remote{Programs: programs, Cluster: engine.Cluster{Run: run, Members: []engine.Member{{Node: "a"}, {Node: "b"}}}}
	return r.Usage(t.Context())
}

// The usage is that of the cgroups of the programs, with what they start: once for each cgroup, and on two nodes.
func TestUsage(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid int, name, cgroup string) { // with 4 s of processor time and 2 MiB
		write(fmt.Sprintf("proc/%d/comm", pid), name+"\n")
		write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
		write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) x) S 1 1 1 0 -1 4194560 9 0 0 0 100 50 200 50 20 0 9 0 100 1 1\n", pid, name))
		write(fmt.Sprintf("proc/%d/status", pid), "Name:\tx\nVmHWM:\t2048 kB\n")
	}
	process(10, "kube-controller", "0::/pod/a.scope\n")
	write("sys/fs/cgroup/pod/a.scope/cpu.stat", "usage_usec 1500000\nuser_usec 1\n")
	write("sys/fs/cgroup/pod/a.scope/memory.peak", "1048576\n")
	process(20, "containerd", "0::/system.slice/containerd.service\n")
	process(21, "containerd-shim", "0::/system.slice/containerd.service\n")
	write("sys/fs/cgroup/system.slice/containerd.service/cpu.stat", "usage_usec 500000\n")
	write("sys/fs/cgroup/system.slice/containerd.service/memory.current", "4096\n")
	process(30, "slurmstepd", "0::/system.slice/slurmstepd.scope/job_1/step_0/slurm\n")
	process(31, "slurmstepd", "0::/system.slice/slurmstepd.scope/system\n")
	write("sys/fs/cgroup/system.slice/slurmstepd.scope/cpu.stat", "usage_usec 7000000\n")
	process(40, "flux-broker-3", "9:cpuacct:/\n1:name=systemd:/system.slice/flux.service\n")
	process(41, "flux-shell", "1:name=systemd:/system.slice/flux.service\n")
	write("sys/fs/cgroup/systemd/system.slice/flux.service/cgroup.procs", "40\n41\n99\n")
	process(50, "bash", "0::/user.slice\n")
	got, err := readUsage(t, func(ctx context.Context, _ string, stdin io.Reader, argv ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, argv[0], append(argv[1:3:3], append([]string{root}, argv[4:]...)...)...)
		cmd.Stdin = stdin
		return cmd.Output()
	}, "kube-controller-manager", "containerd", "slurmstepd", "flux-broker-*", "no-such-program")
	want := map[string]Usage{"kube-controller-manager": {3, 2 << 20}, "containerd": {1, 8192}, "slurmstepd": {14, 0}, "flux-broker": {16, 8 << 20}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v%s", err, diff)
	}
	for _, line := range []string{"etcd", "etcd|x|1", "etcd|1|-1"} {
		run := func(context.Context, string, io.Reader, ...string) ([]byte, error) { return []byte(line), nil }
		if _, err := readUsage(t, run, "etcd"); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}
