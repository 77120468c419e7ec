package workload

import (
	"testing"
	"testing/fstest"
)

func TestFreeMemory(t *testing.T) {
	const (
		meminfo = "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:   8000 kB\n"
		v2Mount = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1Mount = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
			"33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
			"35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		noLimitV1 = "9223372036854771712\n"
	)
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"an unknown kernel", nil, unknownMemory},
		{"no cgroups", map[string]string{"proc/meminfo": meminfo}, 8000 << 10},
		{"version 2 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.high": "max\n", "sys/fs/cgroup/user.slice/memory.current": "1\n",
		}, 8000 << 10},
		{"version 2, the limit of an ancestor that others use, too", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a.slice/b.service\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/a.slice/b.service/memory.max": "5000000\n", "sys/fs/cgroup/a.slice/b.service/memory.current": "1000000\n",
			"sys/fs/cgroup/a.slice/memory.max": "6000000\n", "sys/fs/cgroup/a.slice/memory.current": "4000000\n",
		}, 2000000},
		{"version 2, with page cache and memory.high", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.high": "3000000\n", "sys/fs/cgroup/a/memory.current": "2000000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500000\nactive_file 400000\n",
		}, 1900000},
		{"version 2, above the limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/a/memory.max": "100\n", "sys/fs/cgroup/a/memory.current": "200\n",
		}, 0},
		{"version 2, a limit above the machine's memory", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/a/memory.max": "999999999999\n", "sys/fs/cgroup/a/memory.current": "200\n",
		}, 8000 << 10},
		{"version 2, a container that sees its own cgroup as the root", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "1000\n",
		}, 4000},
		{"version 1, nested", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/\n0::/\n", "proc/self/mountinfo": v1Mount,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": noLimitV1, "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "7\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000000\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "2000000\n",
			"sys/fs/cgroup/memory/a/memory.stat":         "inactive_file 1\ntotal_inactive_file 300000\ntotal_active_file 200000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": noLimitV1, "sys/fs/cgroup/memory/memory.usage_in_bytes": "9\n",
		}, 4500000},
		{"version 1, a container whose mount shows only its part", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory,hugetlb:/docker/abc/sub\n",
			"proc/self/mountinfo":                                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,hugetlb,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":         "5000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":         "1000\n",
			"sys/fs/cgroup/memory/sub/memory.limit_in_bytes":     "3000\n",
			"sys/fs/cgroup/memory/sub/memory.usage_in_bytes":     "500\n",
			"sys/fs/cgroup/memory/docker/memory.limit_in_bytes":  "1\n",
			"sys/fs/cgroup/memory/docker/memory.usage_in_bytes":  "0\n",
			"sys/fs/cgroup/memory/abc/sub/memory.limit_in_bytes": "1\n",
		}, 2500},
		{"version 1, a mount of another part", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/abcdef\n",
			"proc/self/mountinfo":                            "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "5000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     "1000\n",
			"sys/fs/cgroup/memory/def/memory.limit_in_bytes": "1\n",
			"sys/fs/cgroup/memory/def/memory.usage_in_bytes": "0\n",
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
	if r := findResources(); r.cores < 1 || r.memory <= 0 || r.memory == unknownMemory {
		t.Errorf("%+v", r)
	}
}
