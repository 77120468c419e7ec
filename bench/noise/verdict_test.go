package noise

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func quiet() Report {
	return Report{Steal: new(0.0), ForeignCPU: new(0.05), PSICPU: new(0.0), SpinRatio: new(1.0)}
}

// loud returns a report in which everything is above its limit.
func loud() Report {
	return Report{
		Steal: new(1.0), ForeignCPU: new(1.0), PSICPU: new(1.0), SpinRatio: new(9.0), SwapPages: new(200.0),
		KernelAlerts: []string{"Memory cgroup out of memory: Killed process 7 (x)"}, ClockStep: new(0.5), FrequencyBusy: new(0.3),
		Disturbances: []Disturbance{{"w-1", "paused"}},
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name       string
		thresholds Thresholds
		change     func(r *Report)
		want       Verdict
	}{
		{"at the limit", defaultThresholds(), func(*Report) {}, Verdict{State: Valid}},
		{"foreign", defaultThresholds(), func(r *Report) {
			r.ForeignCPU = new(0.31)
			r.Foreign = []Program{{Name: "stress", PID: 1234}, {Name: "cron", PID: 7}}
		}, Verdict{Invalid, []string{"foreign processes used 31 % of the processors (quiet.foreignCpu: 5 %): 1234 stress, 7 cron"}}},
		{"steal", defaultThresholds(), func(r *Report) { r.Steal = new(0.0123) },
			Verdict{Invalid, []string{"the hypervisor used 1.23 % of the processors for other machines (quiet.steal: 1 %)"}}},
		{"pressure alone", defaultThresholds(), func(r *Report) { r.PSICPU = new(0.9) },
			Verdict{Suspect, []string{"processes waited for a processor during 90 % of the time (quiet.psiCpu: 5 %); the benchmark itself can be the cause"}}},
		{"pressure and foreign", defaultThresholds(), func(r *Report) { r.PSICPU, r.ForeignCPU = new(1.0), new(0.5) },
			Verdict{Invalid, []string{"foreign processes used 50 % of the processors (quiet.foreignCpu: 5 %)",
				"processes waited for a processor during 100 % of the time (quiet.psiCpu: 5 %); foreign processes competed with the benchmark"}}},
		{"slower", defaultThresholds(), func(r *Report) { r.SpinRatio = new(2.5) },
			Verdict{Invalid, []string{"fixed work took 150 % longer than in the reference (quiet.canary: 5 %)"}}},
		{"faster", defaultThresholds(), func(r *Report) { r.SpinRatio = new(0.8) },
			Verdict{Suspect, []string{"fixed work took 20 % less time than in the reference (quiet.canary: 5 %): " +
				"the reference was disturbed, or the processors became faster"}}},
		{"a hypervisor", defaultThresholds(), func(r *Report) { r.Unobserved = []string{"hv-2"} },
			Verdict{Suspect, []string{"noise of hv-2 was not observed"}}},
		{"invalid remains invalid", defaultThresholds(), func(r *Report) { r.Steal, r.Unobserved = new(1.0), []string{"hv-2"} },
			Verdict{Invalid, []string{"the hypervisor used 100 % of the processors for other machines (quiet.steal: 1 %)", "noise of hv-2 was not observed"}}},
		{"swap", defaultThresholds(), func(r *Report) { r.SwapPages = new(200.0) },
			Verdict{Invalid, []string{"200 pages per second were swapped in or out (quiet.swapPages: 100)"}}},
		{"out of memory", defaultThresholds(), func(r *Report) { r.KernelAlerts = []string{"Out of memory: Killed process 7 (x)"} },
			Verdict{Invalid, []string{"the kernel logged: Out of memory: Killed process 7 (x) (quiet.kernelMessages: 0)"}}},
		{"out of memory of a cgroup", defaultThresholds(), func(r *Report) { r.KernelAlerts = loud().KernelAlerts },
			Verdict{Suspect, []string{"the kernel logged: Memory cgroup out of memory: Killed process 7 (x) (quiet.kernelMessages: 0)"}}},
		{"one message is allowed", Thresholds{Steal: 1, ForeignCPU: 1, PSICPU: 1, Canary: 1, Kernel: 1}, func(r *Report) { r.KernelAlerts = []string{"soft lockup"} },
			Verdict{State: Valid}},
		{"clock", defaultThresholds(), func(r *Report) { r.ClockStep = new(0.5) },
			Verdict{Invalid, []string{"the clock of this computer was set by 0.5 s (quiet.clock: 0.01 s)"}}},
		{"frequency", defaultThresholds(), func(r *Report) { r.FrequencyBusy = new(0.3) },
			Verdict{Suspect, []string{"the fastest processor had 30 % of its maximum frequency while the processors were busy (quiet.frequency: 50 %)"}}},
		{"a machine", defaultThresholds(), func(r *Report) { r.Disturbances = loud().Disturbances }, Verdict{Invalid, []string{"the machine w-1 was paused"}}},
		{"nothing observed", defaultThresholds(), func(r *Report) { *r = Report{} },
			Verdict{Suspect, []string{"steal was not observed", "the processor time of foreign processes was not observed",
				"the pressure on the processors was not observed", "the speed of the processors before and after the trial was not observed"}}},
		{"nothing judged", Thresholds{-1, -1, -1, -1, -1, -1, -1, -1}, func(r *Report) {
			*r = loud()
			r.Disturbances = nil
		},
			Verdict{State: Valid}},
		{"a limit of 0", Thresholds{Steal: 0, ForeignCPU: 1, PSICPU: 1, Canary: 1}, func(r *Report) { r.Steal = new(0.001) },
			Verdict{Invalid, []string{"the hypervisor used 0.1 % of the processors for other machines (quiet.steal: 0 %)"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := quiet()
			tt.change(&r)
			if diff := cmp.Diff(tt.want, tt.thresholds.Judge(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// defaultThresholds returns the thresholds of a benchmark that declares none.
func defaultThresholds() Thresholds {
	return Thresholds{
		Steal: 0.01, ForeignCPU: 0.05, PSICPU: 0.05, Canary: 0.05,
		SwapPages: 100, Kernel: 0, Clock: 0.01, Frequency: 0.5,
	}
}
