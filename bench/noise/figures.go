package noise

import "time"

// Figures returns the observed values of a report, by the names that exports of sweeps use.
func (r Report) Figures() map[string]float64 {
	out := map[string]float64{"kernel_alerts": float64(len(r.KernelAlerts)), "disturbed_machines": float64(len(r.Disturbances))}
	for name, value := range map[string]*float64{
		"steal": r.Steal, "foreign_cpu": r.ForeignCPU, "unseen_cpu": r.UnseenCPU, "psi_cpu": r.PSICPU, "throttled": r.Throttled,
		"swap_pages_per_second": r.SwapPages, "kernel_messages": r.KernelMessages, "frequency_min": r.FrequencyMin, "frequency_busy": r.FrequencyBusy,
		"clock_offset_seconds": r.ClockOffset, "clock_step_seconds": r.ClockStep, "canary_spin_ratio": r.SpinRatio,
	} {
		if value != nil {
			out[name] = *value
		}
	}
	for name, c := range map[string]*Canary{"canary_before_": r.Before, "canary_after_": r.After} {
		if c == nil {
			continue
		}
		for part, took := range map[string]time.Duration{"spin": c.Spin, "fsync": c.Fsync, "round_trip": c.RoundTrip} {
			if took > 0 {
				out[name+part+"_seconds"] = took.Seconds()
			}
		}
	}
	return out
}
