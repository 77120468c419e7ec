package noise

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func quiet() Report {
	return Report{Steal: new(0.0), ForeignCPU: new(0.05), UnseenCPU: new(-0.01), PSICPU: new(0.0), SpinRatio: new(1.0)}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name       string
		thresholds Thresholds
		change     func(r *Report)
		want       Verdict
	}{
		{"at the limit", DefaultThresholds(), func(*Report) {}, Verdict{State: Valid}},
		{"foreign", DefaultThresholds(), func(r *Report) {
			r.ForeignCPU = new(0.31)
			r.Foreign = []Program{{Name: "stress", PID: 1234}, {Name: "cron", PID: 7}}
		}, Verdict{Invalid, []string{"foreign processes used 31 % of the processors (limit: 5 %): 1234 stress, 7 cron"}}},
		{"steal", DefaultThresholds(), func(r *Report) { r.Steal = new(0.0123) },
			Verdict{Invalid, []string{"the hypervisor used 1.23 % of the processors for other machines (limit: 1 %)"}}},
		{"pressure alone", DefaultThresholds(), func(r *Report) { r.PSICPU = new(0.9) },
			Verdict{Suspect, []string{"processes waited for a processor during 90 % of the time (limit: 5 %); the benchmark itself can be the cause"}}},
		{"pressure and foreign", DefaultThresholds(), func(r *Report) { r.PSICPU, r.ForeignCPU = new(1.0), new(0.5) },
			Verdict{Invalid, []string{"foreign processes used 50 % of the processors (limit: 5 %)",
				"processes waited for a processor during 100 % of the time (limit: 5 %); foreign processes competed with the benchmark"}}},
		{"slower", DefaultThresholds(), func(r *Report) { r.SpinRatio = new(2.5) },
			Verdict{Invalid, []string{"fixed work took 150 % longer than in the reference (limit: 5 %)"}}},
		{"faster", DefaultThresholds(), func(r *Report) { r.SpinRatio = new(0.8) },
			Verdict{Suspect, []string{"fixed work took 20 % less time than in the reference (limit: 5 %): " +
				"the reference was disturbed, or the processors became faster"}}},
		{"unseen", DefaultThresholds(), func(r *Report) { r.UnseenCPU = new(0.051) },
			Verdict{Suspect, []string{"processes that were not visible, or ran only briefly, used 5.1 % of the processors (limit: 5 %)"}}},
		{"a hypervisor", DefaultThresholds(), func(r *Report) { r.Unobserved = []string{"hv-2"} },
			Verdict{Suspect, []string{"noise of hv-2 was not observed"}}},
		{"invalid remains invalid", DefaultThresholds(), func(r *Report) { r.Steal, r.Unobserved = new(1.0), []string{"hv-2"} },
			Verdict{Invalid, []string{"the hypervisor used 100 % of the processors for other machines (limit: 1 %)", "noise of hv-2 was not observed"}}},
		{"nothing observed", DefaultThresholds(), func(r *Report) { *r = Report{} },
			Verdict{Suspect, []string{"steal was not observed", "the processor time of foreign processes was not observed",
				"the pressure on the processors was not observed", "the speed of the processors before and after the trial was not observed"}}},
		{"nothing judged", Thresholds{-1, -1, -1, -1}, func(r *Report) { *r = Report{Steal: new(1.0), SpinRatio: new(9.0), UnseenCPU: new(1.0)} },
			Verdict{State: Valid}},
		{"a limit of 0", Thresholds{Steal: 0, ForeignCPU: 1, PSICPU: 1, Canary: 1}, func(r *Report) { r.Steal = new(0.001) },
			Verdict{Invalid, []string{"the hypervisor used 0.1 % of the processors for other machines (limit: 0 %)"}}},
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
