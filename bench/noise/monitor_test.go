package noise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// spinVariable makes the test program a process that uses a processor until it ends.
const spinVariable = "NOISE_TEST_SPIN"

func TestMain(m *testing.M) {
	if os.Getenv(spinVariable) != "" {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			runtime.KeepAlive(work(100_000))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startSpinning starts a process that uses a processor until the test ends. Its program has the given name.
func startSpinning(t *testing.T, name string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), spinVariable+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestPlantedProcess: a busy process is foreign, unless it belongs to the tree of the benchmark.
func TestPlantedProcess(t *testing.T) {
	id := startSpinning(t, "planted")
	own, foreign := NewSampler(Source{}), NewSampler(Source{})
	foreign.self = id + 1<<23 // no process: this process and its child do not belong to the benchmark
	defer own.Close()
	defer foreign.Close()
	own.Sample()
	foreign.Sample()
	time.Sleep(1500 * time.Millisecond)
	own.Sample()
	last := foreign.Sample()
	isPlanted := func(p Program) bool { return p.PID == id && p.Name == "planted" }
	if i := slices.IndexFunc(foreign.processes.top(10), isPlanted); i < 0 || foreign.processes.top(10)[i].Seconds < 0.1 || *last.Foreign < 0.1 {
		t.Errorf("the planted process is not foreign: %+v, %s s", foreign.processes.top(10), text(last.Foreign))
	}
	if slices.ContainsFunc(own.processes.top(1000), isPlanted) {
		t.Errorf("a child of this process is foreign: %+v", own.processes.top(1000))
	}
}

func TestMonitor(t *testing.T) {
	m, err := Start(t.Context(), Options{Interval: 20 * time.Millisecond, Reference: Canary{Spin: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	r := m.Stop()
	if r.Duration < 100*time.Millisecond || len(r.Samples) < 3 || r.ForeignCPU == nil || r.Before == nil || r.After == nil || r.SpinRatio == nil {
		t.Errorf("%+v", r)
	}
	for _, c := range []*Canary{r.Before, r.After} {
		if c != nil && c.Spin <= 0 {
			t.Errorf("a canary without a value: %+v", c)
		}
	}
	if v := defaultThresholds().Judge(r); v.State == "" {
		t.Errorf("%+v", v)
	}
}

func TestMonitorEnds(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	m, err := Start(ctx, Options{Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cancel(interrupted)
	r := m.Stop()
	if len(r.Samples) != 2 || r.Before == nil {
		t.Errorf("%d samples, %+v", len(r.Samples), r.Before)
	}
	if _, err := Start(ctx, Options{Interval: time.Hour}); !errors.Is(err, interrupted) {
		t.Errorf("the error is %v", err)
	}
}

func TestShare(t *testing.T) {
	same(t, "a part", share(new(1.0), new(4.0)), 0.25)
	same(t, "a part that was read later than the whole", share(new(5.0), new(4.0)), 1)
	if got := share(new(1.0), new(0.0)); got != nil {
		t.Errorf("the share of nothing is %v", *got)
	}
}

func TestSummarize(t *testing.T) {
	at := func(seconds float64, s Sample) Sample {
		s.Time = time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
		return s
	}
	r := summarize([]Sample{
		at(0, Sample{Total: new(100.0), Busy: new(10.0), Steal: new(5.0), Foreign: new(0.0), Pressure: new(3.0), SwapPages: new(7.0), Frequency: new(1.0)}),
		at(5, Sample{Total: new(110.0), Busy: new(11.0), Frequency: new(0.5), Machines: map[string]string{"w-1": "paused"}}),
		at(10, Sample{Total: new(120.0), Steal: new(6.0), Foreign: new(4.0), Pressure: new(4.0), SwapPages: new(9.0),
			Frequency: new(0.9), Busy: new(17.0), Machines: map[string]string{"w-1": "paused"}}),
	})
	same(t, "steal", r.Steal, 0.05)
	same(t, "foreign", r.ForeignCPU, 0.2)
	same(t, "pressure", r.PSICPU, 0.1)
	same(t, "swapped pages", r.SwapPages, 0.2)
	same(t, "frequency of busy processors", r.FrequencyBusy, 0.9)
	same(t, "clock step", r.ClockStep, 0)
	if r.Duration != 10*time.Second {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff([]Disturbance{{"w-1", "paused"}}, r.Disturbances); diff != "" {
		t.Error(diff)
	}
}

func TestSpinRatio(t *testing.T) {
	c := func(ms int) Canary { return Canary{Spin: time.Duration(ms) * time.Millisecond} }
	same(t, "the slower one", spinRatio(c(20), c(22), c(21)), 1.1)
	same(t, "the faster one", spinRatio(c(20), c(21), c(10)), 0.5)
	if got := spinRatio(Canary{}, c(20)); got != nil {
		t.Errorf("a ratio of what was not measured: %v", *got)
	}
}

// A hypervisor reports a machine that is paused for a moment. Its last answers are errors.
func TestMonitorAsksForStates(t *testing.T) {
	var asked atomic.Int64
	m, err := Start(t.Context(), Options{Interval: 5 * time.Millisecond, States: func(context.Context) (map[string]string, error) {
		switch n := asked.Add(1); {
		case n == 3:
			return map[string]string{"w-1": "paused", "w-2": "running"}, nil
		case n > 5:
			return nil, errors.New("no answer")
		}
		return map[string]string{"w-1": "running", "w-2": "running"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for asked.Load() < 7 {
		time.Sleep(time.Millisecond)
	}
	v := defaultThresholds().Judge(m.Stop())
	if v.State != Invalid || !slices.Contains(v.Reasons, "the machine w-1 was paused") ||
		!slices.Contains(v.Reasons, "noise of the machines, whose states their hypervisor did not report (no answer) was not observed") {
		t.Errorf("%+v", v)
	}
}

// A stopped process of a machine, such as QEMU, and one that ends disturb a trial.
func TestMonitorSeesStoppedMachine(t *testing.T) {
	id := startSpinning(t, "qemu-system-x86_64")
	machines := Source{Machines: map[string]int{"w-1": id, "w-2": 1<<22 + 1}}
	var samples atomic.Int64
	m, err := Start(t.Context(), Options{Interval: 10 * time.Millisecond, Source: machines, States: func(context.Context) (map[string]string, error) {
		samples.Add(1)
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(id, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for before := samples.Load(); samples.Load() < before+2; { // the second sample begins after the stop
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(id, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Disturbance{{"w-1", "stopped"}, {"w-2", "off"}}, m.Stop().Disturbances); diff != "" {
		t.Error(diff)
	}
}

func TestMeasureReference(t *testing.T) {
	c, err := MeasureReference(t.Context())
	if err != nil || c.Spin <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The figures of noise have names in exports. Those that were not observed are left out.
func TestFigures(t *testing.T) {
	r := Report{Steal: new(0.5), KernelAlerts: []string{"x"}, Disturbances: []Disturbance{{Machine: "w-1", State: "paused"}}, After: &Canary{Spin: time.Millisecond}}
	want := map[string]float64{"steal": 0.5, "kernel_alerts": 1, "disturbed_machines": 1, "canary_after_spin_seconds": 0.001}
	if diff := cmp.Diff(want, r.Figures()); diff != "" {
		t.Error(diff)
	}
}
