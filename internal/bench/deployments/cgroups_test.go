package deployments

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFindHierarchy(t *testing.T) {
	const hybrid = `30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:12 - cgroup cgroup rw,memory
`
	const inside = "40 30 0:28 /lab /lab/cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" // of another cgroup namespace
	const v2 = "31 30 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	for text, want := range map[string]hierarchy{
		hybrid:          {"/sys/fs/cgroup/cpu,cpuacct", false},
		inside + hybrid: {"/sys/fs/cgroup/cpu,cpuacct", false},
		v2:              {"/sys/fs/cgroup", true},
	} {
		if got, err := findHierarchy(text); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if got, err := findHierarchy("30 25 0:26 / /sys rw - sysfs sysfs rw\n"); err == nil {
		t.Errorf("found %+v where no cgroups are mounted", got)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The cgroup of a node is found by its name and its lab, and the accounting file of each version is read.
func TestReadUsage(t *testing.T) {
	for _, h := range []hierarchy{{t.TempDir(), false}, {t.TempDir(), true}} {
		for path, usage := range map[string]string{
			"nixbench-lab-a/machine/lxc-7-m1.libvirt-lxc":   "1",
			"nixbench-lab-b/machine/lxc-7-m11.libvirt-lxc":  "2",
			"nixbench-lab-b/machine/lxc-7-x-m1.libvirt-lxc": "3",
			"nixbench-lab-b/machine/lxc-7-m1.libvirt-lxc":   "4",
		} {
			writeFile(t, filepath.Join(h.mount, path, "cpuacct.usage"), usage+"500000000\n")
			writeFile(t, filepath.Join(h.mount, path, "cpu.stat"), "usage_usec "+usage+"500000\nuser_usec 1\nsystem_usec 2\n")
		}
		group, err := h.findNodeGroup("nixbench-lab-b", "m1")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.readUsage(group); err != nil || got != 4.5 {
			t.Errorf("unified %v: %v seconds, %v, want 4.5", h.unified, got, err)
		}
		if group, err := h.findNodeGroup("nixbench-lab-b", "m2"); err == nil {
			t.Errorf("a node that does not exist has the cgroup %s", group)
		}
	}
	if _, err := parseUsage("many\n"); err == nil {
		t.Error("parseUsage accepts a word")
	}
	if _, err := parseStat("user_usec 1\n"); err == nil {
		t.Error("parseStat accepts a text without usage_usec")
	}
}

func TestListProcesses(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "cgroup.procs"), "12\n7\n")
	writeFile(t, filepath.Join(dir, "system.slice", "sshd.service", "cgroup.procs"), "99\n")
	got, err := listProcesses(dir)
	if slices.Sort(got); err != nil || !slices.Equal(got, []uint32{7, 12, 99}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFindLabID(t *testing.T) {
	if got, err := findLabID("5:cpuacct:/ci/nixbench-lab-04f96b07a71c\n0::/nixbench-lab-04f96b07a71c/host\n"); err != nil || got != "nixbench-lab-04f96b07a71c" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := findLabID("0::/init.scope\n"); err == nil {
		t.Errorf("found %q", got)
	}
}

func TestFirstOfContainer(t *testing.T) {
	for ids, want := range map[string]bool{"6045\t164\t1": true, "6044\t163": false, "15152\t4415\t1805": false, "1": false, "90\t80\t20\t1": false} {
		if got := isFirstOfContainer("Name:\tx\nNSpid:\t" + ids + "\nVmPeak:\t1 kB\n"); got != want {
			t.Errorf("NSpid %q: %v", ids, got)
		}
	}
}
