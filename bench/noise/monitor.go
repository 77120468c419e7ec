package noise

import (
	"cmp"
	"context"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
)

const (
	topPrograms = 3                // number of foreign programs in a report
	canaryTime  = 30 * time.Second // time limit of the canary after a trial, which runs also if the trial's context has ended
	// statesTimeout is the time limit of a request for the states of machines.
	statesTimeout = 10 * time.Second
)

// States of a machine. A hypervisor reports further states. All but running are a [Disturbance].
const (
	running = "running"
	stopped = "stopped"
	ended   = "off"
)

// Disturbance says that a machine of the benchmark did not run at some time during a trial.
type Disturbance struct {
	Machine string `json:"machine"`
	State   string `json:"state"` // paused, stopped, off, crashed or absent
}

// Options are the options of a monitor.
type Options struct {
	Source    Source
	Reference Canary        // the time of the fixed work on the idle machine
	Interval  time.Duration // between two samples
	// States returns the states of the benchmark's machines by name, as their hypervisors report them. nil: the hypervisors are not asked.
	States func(context.Context) (map[string]string, error)
}

// Report contains what a monitor has observed. Shares are between 0 and 1. Shares of processor time refer to all processors of the
// computer.
type Report struct {
	Began         time.Time     `json:"began"`
	Duration      time.Duration `json:"duration"` // from the first sample to the last one
	Steal         *float64      `json:"steal,omitempty"`
	ForeignCPU    *float64      `json:"foreignCPU,omitempty"`
	PSICPU        *float64      `json:"psiCPU,omitempty"` // share of the time in which a process waited for a processor
	SwapPages     *float64      `json:"swapPagesPerSecond,omitempty"`
	FrequencyBusy *float64      `json:"frequencyBusy,omitempty"` // lowest Frequency (of the fastest processor) of samples in which at least half of the processors were busy
	KernelAlerts  []string      `json:"kernelAlerts,omitempty"`  // the first of the kernel messages that count for Thresholds.Kernel
	ClockStep     *float64      `json:"clockStep,omitempty"`     // the largest amount by which the clock was set, in seconds
	Disturbances  []Disturbance `json:"disturbances,omitempty"`
	Foreign       []Program     `json:"foreign,omitempty"`   // the foreign programs that used the most
	Reference     *Canary       `json:"reference,omitempty"` // the canary with which Before and After are compared
	Before        *Canary       `json:"before,omitempty"`
	After         *Canary       `json:"after,omitempty"`
	SpinRatio     *float64      `json:"spinRatio,omitempty"` // Spin of Before or After, divided by Spin of Reference: the ratio further from 1
	Unobserved    []string      `json:"unobserved,omitempty"`
	Samples       []Sample      `json:"samples"`
}

// Monitor takes samples in the background.
type Monitor struct {
	options   Options
	sampler   *Sampler
	before    Canary
	samples   []Sample // until the goroutine that takes samples has ended, only this goroutine uses the fields here and below
	statesErr error    // the error of the first request for the states of machines that failed
	stop      context.CancelFunc
	done      chan struct{}
}

// Start measures the canary, takes the first sample, and takes samples in the background until Stop is called or ctx ends.
// It returns an error only if ctx ends before the first sample. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Monitor, error) {
	before, err := spin(ctx, spinRuns)
	if err != nil {
		return nil, err
	}
	m := &Monitor{options: o, before: before, sampler: NewSampler(o.Source), done: make(chan struct{})}
	m.sample(ctx)
	ctx, m.stop = context.WithCancel(ctx)
	go m.run(ctx)
	return m, nil
}

func (m *Monitor) sample(ctx context.Context) {
	s := m.sampler.Sample()
	m.addStates(ctx, s)
	m.samples = append(m.samples, s)
}

// addStates adds to a sample the states of machines that their hypervisors report. It keeps the error of the first request that failed.
func (m *Monitor) addStates(ctx context.Context, s Sample) {
	if m.options.States == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statesTimeout)
	defer cancel()
	states, err := m.options.States(ctx)
	for machine, state := range states {
		if state != running {
			s.Machines[machine] = state
		}
	}
	if err != nil && m.statesErr == nil && ctx.Err() != context.Canceled {
		m.statesErr = err
	}
}

// run takes a sample in each interval until ctx ends, and then the last one.
func (m *Monitor) run(ctx context.Context) {
	defer close(m.done)
	tick := time.NewTicker(m.options.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.sample(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			m.sample(ctx)
		}
	}
}

// Stop takes the last sample, measures the canary again, and returns the report. It must be called once.
func (m *Monitor) Stop() Report {
	m.stop()
	<-m.done
	m.sampler.Close()
	ctx, cancel := context.WithTimeout(context.Background(), canaryTime)
	defer cancel()
	after, err := spin(ctx, spinRuns)
	r := summarize(m.samples)
	r.Foreign = m.sampler.processes.top(topPrograms)
	r.KernelAlerts = m.sampler.kmsg.alerts
	r.Reference, r.Before = &m.options.Reference, &m.before
	if err == nil {
		r.After, r.SpinRatio = &after, spinRatio(m.options.Reference, m.before, after)
	}
	if m.statesErr != nil {
		r.Unobserved = append(r.Unobserved, "the machines, whose states their hypervisor did not report ("+m.statesErr.Error()+")")
	}
	return r
}

// spinRatio returns the time of the fixed computation before or after the trial, divided by its time in the reference. Of these ratios, it
// returns the one that is further from 1.
func spinRatio(reference Canary, canaries ...Canary) (out *float64) {
	for _, c := range canaries {
		if ratio := c.Spin.Seconds() / reference.Spin.Seconds(); reference.Spin > 0 && (out == nil || math.Abs(ratio-1) > math.Abs(*out-1)) {
			out = &ratio
		}
	}
	return out
}

// summarize returns a report about the time between the first and the last sample. samples must not be empty.
func summarize(samples []Sample) Report {
	first, last := samples[0], samples[len(samples)-1]
	r := Report{Began: first.Time, Duration: last.Time.Sub(first.Time), Samples: samples}
	total := increase(first.Total, last.Total)
	r.Steal = share(increase(first.Steal, last.Steal), total)
	r.ForeignCPU = share(increase(first.Foreign, last.Foreign), total)
	r.PSICPU = share(increase(first.Pressure, last.Pressure), new(r.Duration.Seconds()))
	r.SwapPages = share(increase(first.SwapPages, last.SwapPages), new(r.Duration.Seconds()))
	seen := map[Disturbance]bool{}
	for i, s := range samples {
		for machine, state := range s.Machines {
			seen[Disturbance{machine, state}] = true
		}
		if i == 0 {
			continue
		}
		old := samples[i-1]
		if busy := share(increase(old.Busy, s.Busy), increase(old.Total, s.Total)); busy != nil && *busy >= 0.5 && s.Frequency != nil && (r.FrequencyBusy == nil || *s.Frequency < *r.FrequencyBusy) {
			r.FrequencyBusy = s.Frequency
		}
		// The wall clock was set by this difference: the difference of the wall clock times contains it, and the difference of
		// the monotonic times does not.
		step := s.Time.Round(0).Sub(old.Time.Round(0)) - s.Time.Sub(old.Time)
		if r.ClockStep == nil || step.Abs().Seconds() > *r.ClockStep {
			r.ClockStep = new(step.Abs().Seconds())
		}
	}
	r.Disturbances = slices.SortedFunc(maps.Keys(seen), func(a, b Disturbance) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.State, b.State))
	})
	return r
}

// increase returns last - first. It returns nil if one of the values is nil, or if the counter has become smaller, as after
// the restore of a virtual machine.
func increase(first, last *float64) *float64 {
	if first == nil || last == nil {
		return nil
	}
	return new(max(*last-*first, 0))
}

// share returns part/whole, but at most 1. The counters are read one after the other, so a part can seem larger than the whole.
func share(part, whole *float64) *float64 {
	if part == nil || whole == nil || *whole <= 0 {
		return nil
	}
	return new(min(*part / *whole, 1))
}

// Figures returns the observed values of a report, by the names that exports of sweeps use.
func (r Report) Figures() map[string]float64 {
	out := map[string]float64{"kernel_alerts": float64(len(r.KernelAlerts)), "disturbed_machines": float64(len(r.Disturbances))}
	for name, value := range map[string]*float64{
		"steal": r.Steal, "foreign_cpu": r.ForeignCPU, "psi_cpu": r.PSICPU,
		"swap_pages_per_second": r.SwapPages, "frequency_busy": r.FrequencyBusy,
		"clock_step_seconds": r.ClockStep, "canary_spin_ratio": r.SpinRatio,
	} {
		if value != nil {
			out[name] = *value
		}
	}
	for name, c := range map[string]*Canary{"canary_before_spin_seconds": r.Before, "canary_after_spin_seconds": r.After} {
		if c != nil {
			out[name] = c.Spin.Seconds()
		}
	}
	return out
}

// The amount of work of a canary, which is a fixed piece of work. A canary takes about 0.2 s. The reference does the work more often: noise
// makes work only slower, so the fastest time had the least noise.
const (
	spinRuns      = 7
	referenceRuns = 35
	spinSteps     = 10_000_000 // about 20 ms
)

// Canary contains how long a fixed piece of work takes on the machine. It is measured before and after a trial, and not during the trial.
type Canary struct {
	Spin time.Duration `json:"spin"` // the shortest of several wall times of the fixed computation
}

func MeasureReference(ctx context.Context) (Canary, error) { return spin(ctx, referenceRuns) }

// work is the fixed computation of a canary. It returns a result, so that the compiler does not remove the computation.
func work(steps int) uint64 {
	x := uint64(88172645463325252)
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// spin runs the fixed computation several times, and returns the shortest wall time.
func spin(ctx context.Context, runs int) (c Canary, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range runs {
		if ctx.Err() != nil {
			return Canary{}, context.Cause(ctx)
		}
		begin := time.Now()
		runtime.KeepAlive(work(spinSteps))
		if took := time.Since(begin); c.Spin == 0 || took < c.Spin {
			c.Spin = took
		}
	}
	return c, nil
}
