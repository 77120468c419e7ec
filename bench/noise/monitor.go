package noise

import (
	"context"
	"fmt"
	"math"
	"time"
)

// topPrograms is the number of foreign programs in a report.
const topPrograms = 3

// canaryTime is the time limit of the canary (a fixed piece of work) after a trial. This canary runs also if the trial's context has ended.
const canaryTime = 30 * time.Second

// Options are the options of a monitor.
type Options struct {
	Source    Source
	Dir       string        // where the canary writes a temporary file, such as the folder of the sweep
	Reference Canary        // times of the fixed work on the idle machine; missing parts are taken from the canary before the trial
	Interval  time.Duration // between two samples; default: 1 s
	// RoundTrip sends a request to a node of the benchmark, and returns the time until the answer. If RoundTrip is nil, no request is sent.
	RoundTrip func(context.Context) (time.Duration, error)
	// States returns the states of the benchmark's machines by name, as their hypervisors report them. nil: the hypervisors are not asked.
	States func(context.Context) (map[string]string, error)
}

// Report contains what a monitor has observed. Shares are between 0 and 1. Shares of processor time refer to all processors of the
// computer.
type Report struct {
	Began          time.Time     `json:"began"`
	Duration       time.Duration `json:"duration"` // from the first sample to the last one
	Steal          *float64      `json:"steal,omitempty"`
	ForeignCPU     *float64      `json:"foreignCPU,omitempty"`
	UnseenCPU      *float64      `json:"unseenCPU,omitempty"`      // share of processes that were not visible, or ran only between two samples
	PSICPU         *float64      `json:"psiCPU,omitempty"`         // share of the time in which a process waited for a processor
	Throttled      *float64      `json:"throttledShare,omitempty"` // share of CPU limit periods in which a limit stopped nixbench or a machine
	SwapPages      *float64      `json:"swapPagesPerSecond,omitempty"`
	FrequencyMin   *float64      `json:"frequencyMin,omitempty"`  // lowest Frequency of all samples (the frequency of the fastest processor)
	FrequencyBusy  *float64      `json:"frequencyBusy,omitempty"` // the same, of samples in which at least half of the processors were busy
	KernelMessages *float64      `json:"kernelMessages,omitempty"`
	KernelAlerts   []string      `json:"kernelAlerts,omitempty"` // the first of the kernel messages that count for Thresholds.Kernel
	ClockOffset    *float64      `json:"clockOffset,omitempty"`  // the largest offset of the clock that the kernel corrected, in seconds
	ClockStep      *float64      `json:"clockStep,omitempty"`    // the largest amount by which the clock was set, in seconds
	Disturbances   []Disturbance `json:"disturbances,omitempty"`
	Foreign        []Program     `json:"foreign,omitempty"`   // the foreign programs that used the most
	Reference      *Canary       `json:"reference,omitempty"` // the canary with which Before and After are compared
	Before         *Canary       `json:"before,omitempty"`
	After          *Canary       `json:"after,omitempty"`
	SpinRatio      *float64      `json:"spinRatio,omitempty"` // Spin of Before or After, divided by Spin of Reference: the ratio further from 1
	Unobserved     []string      `json:"unobserved,omitempty"`
	Notes          []string      `json:"notes,omitempty"` // observations that are shown and not judged
	Samples        []Sample      `json:"samples"`
}

// Monitor takes samples in the background.
type Monitor struct {
	options Options
	sampler *Sampler
	watcher *watcher
	before  *Canary
	notes   []string
	samples []Sample // until the goroutine that takes samples has ended, only this goroutine uses the fields here and below
	stop    context.CancelFunc
	done    chan struct{}
}

// Start measures the canary, takes the first sample, and takes samples in the background until Stop is called or ctx ends.
// It returns an error only if ctx ends before the first sample. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Monitor, error) {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	m := &Monitor{options: o, done: make(chan struct{})}
	m.before = m.canary(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m.sampler = NewSampler(o.Source)
	m.samples = append(m.samples, m.sampler.Sample())
	m.watcher = watch(ctx, o.States, o.Interval)
	ctx, m.stop = context.WithCancel(ctx)
	go m.run(ctx)
	return m, nil
}

func (m *Monitor) canary(ctx context.Context) *Canary {
	c, err := RunCanary(ctx, m.options.Dir, m.options.RoundTrip)
	if err != nil {
		m.notes = append(m.notes, err.Error())
		return nil
	}
	return &c
}

// run takes a sample in each interval until ctx ends.
func (m *Monitor) run(ctx context.Context) {
	defer close(m.done)
	tick := time.NewTicker(m.options.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.samples = append(m.samples, m.sampler.Sample())
			return
		case <-tick.C:
			m.samples = append(m.samples, m.sampler.Sample())
		}
	}
}

// Stop takes the last sample, measures the canary again, and returns the report. It must be called once.
func (m *Monitor) Stop() Report {
	m.stop()
	<-m.done
	m.sampler.Close()
	seen, statesErr := m.watcher.end()
	ctx, cancel := context.WithTimeout(context.Background(), canaryTime)
	defer cancel()
	after := m.canary(ctx)
	r := summarize(m.samples)
	r.Foreign = m.sampler.processes.top(topPrograms)
	r.KernelAlerts = m.sampler.kmsg.alertTexts()
	for _, d := range r.Disturbances {
		seen = seen.with(d)
	}
	r.Disturbances = seen.list()
	r.Before, r.After = m.before, after
	if statesErr != nil {
		r.Unobserved = append(r.Unobserved, "the machines, whose states their hypervisor did not report ("+statesErr.Error()+")")
	}
	reference := m.options.Reference.complete(m.before)
	r.Reference = &reference
	r.SpinRatio = spinRatio(m.options.Reference, m.before, after)
	r.Notes = append(m.notes, r.Notes...)
	return r
}

// spinRatio returns the time of the fixed computation before or after the trial, divided by its time in the reference. Of these two
// ratios, it returns the one that is further from 1.
func spinRatio(reference Canary, before, after *Canary) (out *float64) {
	if reference.Spin == 0 && before != nil {
		reference, before = *before, nil
	}
	if reference.Spin == 0 {
		return nil
	}
	for _, c := range []*Canary{before, after} {
		if c == nil {
			continue
		}
		if ratio := c.Spin.Seconds() / reference.Spin.Seconds(); out == nil || deviation(ratio) > deviation(*out) {
			out = &ratio
		}
	}
	return out
}

func deviation(ratio float64) float64 { return max(ratio-1, 1-ratio) }

// summarize returns a report about the time between the first and the last sample. samples must not be empty.
func summarize(samples []Sample) Report {
	first, last := samples[0], samples[len(samples)-1]
	r := Report{Began: first.Time, Duration: last.Time.Sub(first.Time), Samples: samples}
	total := increase(first.Total, last.Total)
	r.Steal = share(increase(first.Steal, last.Steal), total)
	r.ForeignCPU = share(increase(first.Foreign, last.Foreign), total)
	r.UnseenCPU = share(increase(first.Unseen, last.Unseen), total)
	r.PSICPU = share(increase(first.Pressure, last.Pressure), new(r.Duration.Seconds()))
	throttled := increase(first.Throttled, last.Throttled)
	r.Throttled = share(throttled, increase(first.Periods, last.Periods))
	swapped := increase(first.SwapPages, last.SwapPages)
	r.SwapPages = share(swapped, new(r.Duration.Seconds()))
	r.KernelMessages = increase(first.Messages, last.Messages)
	seen := disturbances{}
	for i, s := range samples {
		seen.add(s.Machines)
		r.FrequencyMin = lower(r.FrequencyMin, s.Frequency)
		if s.Offset != nil && (r.ClockOffset == nil || math.Abs(*s.Offset) > *r.ClockOffset) {
			r.ClockOffset = new(math.Abs(*s.Offset))
		}
		if i == 0 {
			continue
		}
		old := samples[i-1]
		if busy := share(increase(old.Busy, s.Busy), increase(old.Total, s.Total)); busy != nil && *busy >= 0.5 {
			r.FrequencyBusy = lower(r.FrequencyBusy, s.Frequency)
		}
		// The wall clock was set by this difference: the difference of the wall clock times contains it, and the difference of
		// the monotonic times does not.
		step := s.Time.Round(0).Sub(old.Time.Round(0)) - s.Time.Sub(old.Time)
		if r.ClockStep == nil || step.Abs().Seconds() > *r.ClockStep {
			r.ClockStep = new(step.Abs().Seconds())
		}
	}
	r.Disturbances = seen.list()
	note := func(v *float64, text string) {
		if v != nil && *v > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf(text, *v))
		}
	}
	note(swapped, "%.0f pages were swapped in or out")
	note(throttled, "limits of cgroups stopped nixbench or a machine in %.0f periods")
	note(r.KernelMessages, "the kernel logged %.0f warnings or errors")
	if last.ClockWrong != nil && *last.ClockWrong {
		r.Notes = append(r.Notes, "the clock of this machine is not synchronised")
	}
	return r
}

// lower returns the lower one of two values. A value that is nil is ignored.
func lower(a, b *float64) *float64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
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
