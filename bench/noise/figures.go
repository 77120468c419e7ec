package noise

import "iter"

// Figures returns the observed values of a report, by the names that exports of sweeps use.
func (r Report) Figures() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, f := range []struct {
			name  string
			value *float64
		}{
			{"steal", r.Steal}, {"foreign_cpu", r.ForeignCPU}, {"unseen_cpu", r.UnseenCPU}, {"psi_cpu", r.PSICPU}, {"throttled", r.Throttled},
			{"swap_pages_per_second", r.SwapPages}, {"kernel_messages", r.KernelMessages}, {"kernel_alerts", new(float64(len(r.KernelAlerts)))},
			{"disturbed_machines", new(float64(len(r.Disturbances)))}, {"frequency_min", r.FrequencyMin}, {"frequency_busy", r.FrequencyBusy},
			{"clock_offset_seconds", r.ClockOffset}, {"clock_step_seconds", r.ClockStep}, {"canary_spin_ratio", r.SpinRatio},
		} {
			if f.value != nil && !yield(f.name, *f.value) {
				return
			}
		}
		for _, c := range []struct {
			name   string
			canary *Canary
		}{{"canary_before", r.Before}, {"canary_after", r.After}} {
			if c.canary == nil {
				continue
			}
			for _, part := range []struct {
				name  string
				value float64
			}{{"spin", c.canary.Spin.Seconds()}, {"fsync", c.canary.Fsync.Seconds()}, {"round_trip", c.canary.RoundTrip.Seconds()}} {
				if part.value > 0 && !yield(c.name+"_"+part.name+"_seconds", part.value) {
					return
				}
			}
		}
	}
}
