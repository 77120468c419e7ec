package memgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestPlace(t *testing.T) {
	const (
		v1     = "35 30 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		v2     = "25 24 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "25 24 0:22 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n" + v1
		part   = "35 30 0:32 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	)
	for _, c := range []struct {
		what, own, mounts string
		want              Group
	}{
		{"v1", "5:devices:/\n4:memory:/a/b\n0::/\n", hybrid, Group{"/sys/fs/cgroup/memory/a/b/bench", false}},
		{"v2", "0::/user.slice/user-0.slice/session-1.scope\n", v2, Group{"/sys/fs/cgroup/user.slice/user-0.slice/bench", true}},
		{"v2, root", "0::/\n", v2, Group{"/sys/fs/cgroup/bench", true}},
		{"v2 with v1 for other controllers", "5:devices:/\n0::/a\n", v2, Group{"/sys/fs/cgroup/bench", true}},
		{"a part of v1", "4:memory:/docker/1\n", part, Group{}},
		{"nothing", "", "", Group{}},
	} {
		got, err := place(c.own, c.mounts, "bench")
		if got != c.want || (err != nil) != (c.want == Group{}) {
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
}

const childVariable = "NIXBENCH_MEMGROUP_TEST"

// TestMain runs this program as a process in the group, which allocates memory, if childVariable is set.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	var g Group
	var megabytes int
	if _, err := fmt.Sscanf(os.Getenv(childVariable), "%t %d %s", &g.Unified, &megabytes, &g.Dir); err != nil {
		panic(err)
	}
	if err := g.Enter(); err != nil {
		panic(err)
	}
	used := make([]byte, megabytes<<20)
	for i := range used {
		used[i] = 1
	}
	time.Sleep(5 * sampleInterval)
	fmt.Println(used[len(used)-1])
}

// The limit holds for all processes of the group: the kernel kills one that exceeds it, and counts that.
func TestLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can create a cgroup")
	}
	const limit = 1024 // with the race detector, memory that is used counts several times
	for _, c := range []struct {
		megabytes int
		killed    bool
	}{{128, false}, {2048, true}} {
		g, err := Create(fmt.Sprintf("nixbench-test-%d", os.Getpid()), limit<<20)
		if err != nil {
			t.Skip("this machine has no cgroup for tests: ", err)
		}
		t.Cleanup(func() { _ = g.Remove() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%t %d %s", childVariable, g.Unified, c.megabytes, g.Dir))
		sampling, stop := context.WithCancel(ctx)
		peaks := make(chan int64, 1)
		go func() {
			peak, err := g.Peak(sampling)
			if err != nil {
				t.Error(err)
			}
			peaks <- peak
		}()
		out, err := child.CombinedOutput()
		stop()
		peak := <-peaks >> 20
		kills, killsErr := g.Kills()
		if killsErr != nil {
			t.Error(killsErr)
		}
		if killed := kills > 0; killed != c.killed || (err != nil) != c.killed {
			t.Errorf("%d MB of %d: %d kills, %v\n%s", c.megabytes, limit, kills, err, out)
		}
		if peak > limit || !c.killed && peak < int64(c.megabytes) {
			t.Errorf("%d MB of %d: peak %d MB", c.megabytes, limit, peak)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}
