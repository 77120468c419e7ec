package workload

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:   8000 kB\n"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"an unknown kernel", nil, math.MaxInt64},
		{"no cgroups", map[string]string{"proc/meminfo": meminfo}, 8000 << 10},
		{"cgroups without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice\n",
			"sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.high": "max\n", "sys/fs/cgroup/user.slice/memory.current": "1\n",
		}, 8000 << 10},
		{"the limit of an ancestor that others use, too", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "5000000\n", "sys/fs/cgroup/a.slice/b.service/memory.current": "1000000\n",
			"sys/fs/cgroup/a.slice/memory.max": "6000000\n", "sys/fs/cgroup/a.slice/memory.current": "4000000\n",
		}, 2000000},
		{"with page cache and memory.high", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.high": "3000000\n", "sys/fs/cgroup/a/memory.current": "2000000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500000\nactive_file 400000\n",
		}, 1900000},
		{"above the limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "100\n", "sys/fs/cgroup/a/memory.current": "200\n",
		}, 0},
		{"a limit above the machine's memory", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "999999999999\n", "sys/fs/cgroup/a/memory.current": "200\n",
		}, 8000 << 10},
		{"a container that sees its own cgroup as the root", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "1000\n",
		}, 4000},
	} {
		root := fstest.MapFS{}
		for name, text := range tc.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := freeMemory(root); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
	}
}

func TestFreeMemoryHere(t *testing.T) {
	if memory := availableMemory(); memory <= 0 || memory == math.MaxInt64 {
		t.Errorf("%d", memory)
	}
}
