package noise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tree is a fixture of /proc, /sys and /dev.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree { return tree{t, t.TempDir()} }

func (f tree) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f tree) remove(name string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, name)); err != nil {
		f.t.Fatal(err)
	}
}

// cpu writes the times of all processors in ticks.
func (f tree) cpu(busy, idle, steal int) {
	f.write("proc/stat", fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 %d 999 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", busy, idle, steal))
}

// process writes a process with its times in ticks.
func (f tree) process(id, parent int, name string, used, waited int) {
	f.write(fmt.Sprintf("proc/%d/stat", id), stat(id, parent, name, 0x400000, used, waited))
}

func stat(id, parent int, name string, flags, used, waited int) string {
	return fmt.Sprintf("%d (%s) S %d 1 1 0 -1 %d 1 1 1 1 %d 0 %d 0 20 0 1 0 %d 1 1\n", id, name, parent, flags, used, waited, 100+id)
}

// self is this process in fixtures.
const self = 500

func (f tree) sampler(source Source) *Sampler {
	source.Root = f.root
	s := NewSampler(source)
	s.self = self
	s.throttle = s.throttleFiles()
	s.clock = func(*Sample) {}
	f.t.Cleanup(s.Close)
	return s
}

// same compares optional numbers.
func same(t *testing.T, name string, got *float64, want float64) {
	t.Helper()
	if got == nil || *got-want > 1e-9 || want-*got > 1e-9 {
		t.Errorf("%s is %s, want %v", name, text(got), want)
	}
}

func text(v *float64) string {
	if v == nil {
		return "absent"
	}
	return fmt.Sprint(*v)
}

func TestSample(t *testing.T) {
	f := newTree(t)
	f.cpu(300, 600, 100)
	f.write("proc/pressure/cpu", "some avg10=1.00 avg60=2.00 avg300=3.00 total=2500000\nfull avg10=0 avg60=0 avg300=0 total=7\n")
	f.write("proc/vmstat", "pgpgin 9\npswpin 3\npswpout 4\npswpinx 9\n")
	f.write("proc/500/cgroup", "0::/user.slice/sweep.scope\n")
	f.write("sys/fs/cgroup/user.slice/sweep.scope/cpu.stat", "usage_usec 1\nnr_periods 9\nnr_throttled 5\n")
	f.write("sys/fs/cgroup/user.slice/cpu.stat", "nr_periods 1\nnr_throttled 2\n")
	f.write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n")
	for cpu, frequency := range []string{"1000", "1500"} {
		f.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu), frequency+"\n")
		f.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", cpu), "2000\n")
	}
	f.write("dev/kmsg", "3,1,1,-;before the first sample\n")
	s := f.sampler(Source{})
	f.write("dev/kmsg", "3,1,1,-;before the first sample\n"+
		"4,2,1,-;a warning\n SUBSYSTEM=cpu\n6,3,1,-;information\n12,4,1,-;of a program\n0,5,1,-;serious\n")
	got := s.Sample()
	same(t, "total", got.Total, 10)
	same(t, "steal", got.Steal, 1)
	same(t, "pressure", got.Pressure, 2.5)
	same(t, "swapped pages", got.SwapPages, 7)
	same(t, "throttled", got.Throttled, 7)
	same(t, "frequency", got.Frequency, 0.75)
	same(t, "busy", got.Busy, 3)
	same(t, "messages", got.Messages, 2)
	same(t, "foreign", got.Foreign, 0)
}

func TestSampleLeavesOutWhatIsMissing(t *testing.T) {
	s := newTree(t).sampler(Source{})
	got := s.Sample()
	if diff := cmp.Diff(Sample{Time: got.Time}, got); diff != "" {
		t.Error(diff)
	}
}

func TestThrottlingOfVersion1(t *testing.T) {
	f := newTree(t)
	f.write("proc/500/cgroup", "9:name=systemd:/a\n4:memory:/a\n2:cpu,cpuacct:/a\n0::/b\n")
	f.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.stat", "nr_periods 10\nnr_throttled 3\n")
	f.write("sys/fs/cgroup/memory/a/cpu.stat", "nr_periods 100\nnr_throttled 100\n")
	f.write("sys/fs/cgroup/unified/b/cpu.stat", "nr_periods 20\nnr_throttled 4\n")
	got := f.sampler(Source{}).Sample()
	same(t, "throttled", got.Throttled, 7)
	same(t, "periods", got.Periods, 30)
}

// A machine whose process has ended or was stopped does not run. The limits of its threads' cgroups count.
func TestMachines(t *testing.T) {
	f := newTree(t)
	f.process(700, 1, "libvirt_lxc", 1, 0)
	f.process(800, 1, "qemu-system-x86", 1, 0)
	f.write("proc/801/cgroup", "0::/machine.slice/w-2/vcpu0\n")
	f.write("proc/800/task/801/stat", "")
	f.write("sys/fs/cgroup/machine.slice/w-2/vcpu0/cpu.stat", "usage_usec 1\nnr_periods 9\nnr_throttled 5\n")
	s := f.sampler(Source{Machines: map[string]int{"w-1": 700, "w-2": 800, "w-3": 900}})
	check := func(want map[string]string) {
		t.Helper()
		want["w-3"] = "off"
		if diff := cmp.Diff(want, s.Sample().Machines); diff != "" {
			t.Error(diff)
		}
	}
	check(map[string]string{})
	same(t, "throttled", s.Sample().Throttled, 5)
	f.write("proc/800/stat", strings.Replace(stat(800, 1, "qemu-system-x86", 0, 1, 0), ") S ", ") T ", 1))
	f.remove("proc/700")
	check(map[string]string{"w-1": "off", "w-2": "stopped"})
}

func TestKernelAlerts(t *testing.T) {
	f := newTree(t)
	f.write("dev/kmsg", "")
	s := f.sampler(Source{})
	f.write("dev/kmsg", "3,1,1,-;Out of memory: Killed process 7 (x)\n3,2,1,-;INFO: task sync:7 blocked for more than 120 seconds.\n"+
		"4,3,1,-;a device appeared\n11,4,1,-;Out of memory: says a program\n6,5,1,-;no I/O error\n")
	s.Sample()
	want := []string{"Out of memory: Killed process 7 (x)", "INFO: task sync:7 blocked for more than 120 seconds."}
	if diff := cmp.Diff(want, s.kmsg.alertTexts()); diff != "" {
		t.Error(diff)
	}
}

// interval takes two samples, between which change is called, and returns the foreign and the unseen time.
func (f tree) interval(s *Sampler, change func()) (foreign, unseen *float64) {
	s.Sample()
	change()
	got := s.Sample()
	return got.Foreign, got.Unseen
}

func TestForeignTime(t *testing.T) {
	f := newTree(t)
	f.cpu(10_000, 10_000, 0)
	write := func(add int) {
		f.process(1, 0, "init", 100, 1000)
		f.write("proc/2/stat", stat(2, 0, "kthreadd", 0x208040, 100+20*add, 0))
		f.process(self, 1, "nixbench", 100+add, 50+add) // children that were not seen
		f.process(501, self, "ssh", 100+2*add, 0)       // a child
		f.process(700, 1, "virtqemud", 100+3*add, 0)    // named as a parent
		f.process(701, 700, "qemu", 100+4*add, 0)
		f.process(800, 1, "init) S 1", 100+5*add, 0)
		f.process(900, 1, "stress", 100+6*add, 0)
		f.process(901, 1, "stress", 100+9*add, 0)
		f.process(902, 1, "cron", 100+add, 0)
		f.process(903, 1, "a\x1bb", 100, 0)
	}
	write(0)
	s := f.sampler(Source{Machines: map[string]int{"w-1": 700}})
	foreign, unseen := f.interval(s, func() {
		write(10)
		f.cpu(10_600, 10_000, 0)
	})
	same(t, "foreign", foreign, 2.1)
	same(t, "unseen", unseen, 6-(20+1+1+2+3+4+5+6+9+1)*0.1)
	want := []Program{{Name: "stress", PID: 901, Seconds: 1.5}, {Name: "init) S 1", PID: 800, Seconds: 0.5}, {Name: "cron", PID: 902, Seconds: 0.1}}
	got := s.processes.top(3)
	for i := range got {
		got[i].most = 0
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Program{})); diff != "" {
		t.Error(diff)
	}
	if name := s.processes.byID[903].name; name != "a?b" {
		t.Errorf("the name of a program is %q", name)
	}
}

// TestEndedProcesses: a parent has the whole time of a child after it has waited for it.
func TestEndedProcesses(t *testing.T) {
	for _, tt := range []struct {
		name            string
		change          func(f tree)
		foreign, unseen float64
	}{
		{"a foreign child ends", func(f tree) {
			f.remove("proc/11") // seen with 100 ticks, and used 7 more
			f.process(10, 1, "make", 100, 107)
		}, 0.07, 0.93},
		{"a child ran between the samples", func(f tree) { f.process(10, 1, "make", 100, 30) }, 0.3, 0.7},
		{"a process and its child end together", func(f tree) {
			f.remove("proc/10")
			f.remove("proc/11")
			f.process(1, 0, "init", 100, 205)
		}, 0.05, 0.95},
		{"an own process without a parent ends", func(f tree) {
			f.remove("proc/20")
			f.process(1, 0, "init", 100, 5002)
		}, 0, 1},
		{"a child had a hidden life", func(f tree) { f.process(10, 1, "make", 100, 9000) }, 1, 0},
		{"an id is used again", func(f tree) {
			f.write("proc/11/stat", strings.Replace(stat(11, 10, "cc", 0, 8, 0), " 111 ", " 999 ", 1))
			f.process(10, 1, "make", 100, 100)
		}, 0.08, 0.92},
		{"a new process", func(f tree) { f.process(30, 1, "new", 40, 0) }, 0.4, 0.6},
		{"nothing is visible", func(tree) {}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newTree(t)
			f.cpu(1000, 1000, 0)
			f.process(1, 0, "init", 100, 0)
			f.process(self, 1, "nixbench", 100, 0)
			f.process(10, 1, "make", 100, 0)
			f.process(11, 10, "cc", 100, 0)
			f.process(20, 1, "qemu", 5000, 0)
			foreign, unseen := f.interval(f.sampler(Source{Machines: map[string]int{"w-1": 20}}), func() {
				f.cpu(1100, 1000, 0)
				tt.change(f)
			})
			same(t, "foreign", foreign, tt.foreign)
			same(t, "unseen", unseen, tt.unseen)
		})
	}
}

// TestWaitedLater: a child ends in one interval, and its parent waits for it in the next one.
func TestWaitedLater(t *testing.T) {
	f := newTree(t)
	f.cpu(1000, 1000, 0)
	f.process(10, 1, "make", 100, 0)
	f.process(11, 10, "cc", 60, 0)
	s := f.sampler(Source{})
	s.Sample()
	f.remove("proc/11")
	f.cpu(1100, 1000, 0)
	s.Sample()
	f.process(10, 1, "make", 100, 65)
	f.cpu(1200, 1000, 0)
	same(t, "foreign", s.Sample().Foreign, 0.05)
	f.process(10, 1, "make", 100, 75)
	f.cpu(1300, 1000, 0)
	same(t, "foreign", s.Sample().Foreign, 0.15)
}

// TestOwnRemainsOwn: the parent of a process of the benchmark ends.
func TestOwnRemainsOwn(t *testing.T) {
	f := newTree(t)
	f.cpu(1000, 1000, 0)
	f.process(1, 0, "init", 0, 0)
	f.process(700, 1, "launcher", 1, 0)
	f.process(701, 700, "qemu", 100, 0)
	s := f.sampler(Source{Machines: map[string]int{"w-1": 700}})
	foreign, _ := f.interval(s, func() {
		f.remove("proc/700")
		f.process(701, 1, "qemu", 200, 0)
		f.cpu(1100, 1000, 0)
	})
	same(t, "foreign", foreign, 0)
}

// BenchmarkSample: a sample may not use more than 10 ms of processor time (1 % of a processor) with 500 processes.
func BenchmarkSample(b *testing.B) {
	s := NewSampler(Source{})
	defer s.Close()
	s.Sample()
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		s.Sample()
	}
	used := float64(processorTime(b)-begin) / float64(b.N)
	processes := float64(len(s.processes.byID))
	b.ReportMetric(processes, "processes")
	b.ReportMetric(used, "cpu-ns/op")
	b.ReportMetric(used/processes*500/1e9*100, "%/500-processes-at-1-Hz")
}

func processorTime(b *testing.B) int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
