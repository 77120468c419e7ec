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
	same(t, "frequency", got.Frequency, 0.75)
	same(t, "busy", got.Busy, 3)
	same(t, "foreign", got.Foreign, 0)
}

func TestSampleLeavesOutWhatIsMissing(t *testing.T) {
	s := newTree(t).sampler(Source{})
	got := s.Sample()
	if diff := cmp.Diff(Sample{Time: got.Time, Machines: map[string]string{}}, got); diff != "" {
		t.Error(diff)
	}
}

// A machine whose process has ended or was stopped does not run.
func TestMachines(t *testing.T) {
	f := newTree(t)
	f.process(700, 1, "libvirt_lxc", 1, 0)
	f.process(800, 1, "qemu-system-x86", 1, 0)
	s := f.sampler(Source{Machines: map[string]int{"w-1": 700, "w-2": 800, "w-3": 900}})
	check := func(want map[string]string) {
		t.Helper()
		want["w-3"] = "off"
		if diff := cmp.Diff(want, s.Sample().Machines); diff != "" {
			t.Error(diff)
		}
	}
	check(map[string]string{})
	f.write("proc/800/stat", strings.Replace(stat(800, 1, "qemu-system-x86", 0, 1, 0), ") S ", ") T ", 1))
	f.remove("proc/700")
	check(map[string]string{"w-1": "off", "w-2": "stopped"})
	f.remove("proc/800/stat") // the process exists, and its state cannot be read
	check(map[string]string{"w-1": "off"})
}

func TestKernelAlerts(t *testing.T) {
	f := newTree(t)
	f.write("dev/kmsg", "")
	s := f.sampler(Source{})
	f.write("dev/kmsg", "3,1,1,-;Out of memory: Killed process 7 (x)\n3,2,1,-;INFO: task sync:7 blocked for more than 120 seconds.\n"+
		"4,3,1,-;a device appeared\n11,4,1,-;Out of memory: says a program\n6,5,1,-;no I/O error\n")
	s.Sample()
	want := []string{"Out of memory: Killed process 7 (x)", "INFO: task sync:7 blocked for more than 120 seconds."}
	if diff := cmp.Diff(want, s.kmsg.alerts); diff != "" {
		t.Error(diff)
	}
}

// interval takes two samples, between which change is called, and returns the foreign time.
func (f tree) interval(s *Sampler, change func()) *float64 {
	s.Sample()
	change()
	return s.Sample().Foreign
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
	same(t, "foreign", f.interval(s, func() {
		write(10)
		f.cpu(10_600, 10_000, 0)
	}), 6-(20+1+1+2+3+4)*0.1)
	want := []Program{{Name: "stress", PID: 901, Seconds: 1.5}, {Name: "init) S 1", PID: 800, Seconds: 0.5}, {Name: "cron", PID: 902, Seconds: 0.1}}
	got := s.processes.top(3)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if name := s.processes.byID[903].name; name != `a\u001bb` {
		t.Errorf("the name of a program is %q", name)
	}
	f.remove("proc/901") // a program that has ended is named, too
	s.Sample()
	if diff := cmp.Diff(want, s.processes.top(3)); diff != "" {
		t.Error(diff)
	}
}

// TestEndedProcesses: the time of an ended process of the benchmark is in the counter of its parent. All other time is foreign.
func TestEndedProcesses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(f tree)
		foreign float64
	}{
		{"a foreign child ends", func(f tree) { f.remove("proc/11"); f.process(10, 1, "make", 100, 107) }, 1},
		{"an own child ends", func(f tree) { f.remove("proc/21"); f.process(20, 1, "qemu", 5000, 130) }, 0.7},
		{"an own child ran between the samples", func(f tree) { f.process(20, 1, "qemu", 5000, 30) }, 0.7},
		{"an own child and its parent end", func(f tree) {
			f.remove("proc/21")
			f.remove("proc/22")
			f.process(20, 1, "qemu", 5000, 220)
		}, 0.8},
		{"an own process without a parent ends", func(f tree) { f.remove("proc/20") }, 1},
		{"an id is used again", func(f tree) {
			f.write("proc/22/stat", strings.Replace(stat(22, 21, "cc", 0, 8, 0), " 122 ", " 999 ", 1))
		}, 1},
		{"a new own process", func(f tree) { f.process(30, 21, "new", 40, 0) }, 0.6},
		{"nothing is visible", func(tree) {}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newTree(t)
			f.cpu(1000, 1000, 0)
			f.process(1, 0, "init", 100, 0)
			f.process(self, 1, "nixbench", 100, 0)
			f.process(10, 1, "make", 100, 0)
			f.process(11, 10, "cc", 100, 0)
			f.process(20, 1, "qemu", 5000, 0)
			f.process(21, 20, "sh", 100, 0)
			f.process(22, 21, "cc", 100, 0)
			same(t, "foreign", f.interval(f.sampler(Source{Machines: map[string]int{"w-1": 20}}), func() {
				f.cpu(1100, 1000, 0)
				tt.change(f)
			}), tt.foreign)
		})
	}
}

// TestOwnRemainsOwn: the parent of a process of the benchmark ends.
func TestOwnRemainsOwn(t *testing.T) {
	f := newTree(t)
	f.cpu(1000, 1000, 0)
	f.process(1, 0, "init", 0, 0)
	f.process(700, 1, "launcher", 1, 0)
	f.process(701, 700, "qemu", 100, 0)
	s := f.sampler(Source{Machines: map[string]int{"w-1": 700}})
	same(t, "foreign", f.interval(s, func() {
		f.remove("proc/700")
		f.process(701, 1, "qemu", 201, 0)
		f.cpu(1100, 1000, 0)
	}), 0)
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
