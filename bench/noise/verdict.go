package noise

import (
	"fmt"
	"strconv"
	"strings"
)

// The states of a trial by its noise, from the best to the worst.
const (
	Valid   = "valid"
	Suspect = "suspect" // the result is used, but shown with the reasons for the doubt
	Invalid = "invalid" // the trial is to be repeated
)

// Thresholds are the limits for the noise of a trial. A benchmark declares them before the first trial. A verdict depends only on the
// thresholds and on the observation of this computer, never on the results of the trial. A negative threshold switches its check off.
//
// PSICPU and Frequency, and a process that exceeded the memory of its cgroup, make a trial suspect, and never invalid: the benchmark itself can
// be their cause, and then a repetition would not help. But with foreign processes above their limit, the pressure on the processors makes it
// invalid. A machine of the benchmark that did not run always makes a trial invalid. It has no threshold.
type Thresholds struct {
	Steal      float64 `json:"steal"`          // processor time that the hypervisor of this machine used for other machines, of all processor time
	ForeignCPU float64 `json:"foreignCpu"`     // processor time of processes outside of the benchmark, of all processor time
	PSICPU     float64 `json:"psiCpu"`         // time in which a process waited for a processor, of the duration of the trial
	Canary     float64 `json:"canary"`         // share by which a fixed computation took longer than in the reference
	SwapPages  float64 `json:"swapPages"`      // pages per second that were swapped in or out
	Kernel     float64 `json:"kernelMessages"` // number of messages of the kernel about memory, tasks that hang, and the hardware
	Clock      float64 `json:"clock"`          // seconds by which the clock was set
	Frequency  float64 `json:"frequency"`      // the lowest share of the maximum frequency of a processor when the processors were busy
}

// Verdict is whether a trial was disturbed, and why.
type Verdict struct {
	State   string   `json:"state"`
	Reasons []string `json:"reasons,omitempty"` // why the state is not valid
}

func (v *Verdict) add(state string, format string, args ...any) {
	if v.State != Invalid {
		v.State = state
	}
	v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
}

// Judge compares a report with the thresholds. A value that has a threshold, but was not observed, makes the trial suspect.
func (t Thresholds) Judge(r Report) Verdict {
	v := Verdict{State: Valid}
	// exceeds reports whether a value is above its limit. A negative limit means no check. A value with a name that was not observed makes
	// the verdict suspect.
	exceeds := func(value *float64, limit float64, name string) bool {
		if value == nil && limit >= 0 && name != "" {
			v.add(Suspect, "%s was not observed", name)
		}
		return value != nil && limit >= 0 && *value > limit
	}
	if exceeds(r.Steal, t.Steal, "steal") {
		v.add(Invalid, "the hypervisor used %s of the processors for other machines (quiet.steal: %s)", percent(*r.Steal), percent(t.Steal))
	}
	foreign := exceeds(r.ForeignCPU, t.ForeignCPU, "the processor time of foreign processes")
	if foreign {
		v.add(Invalid, "foreign processes used %s of the processors (quiet.foreignCpu: %s)%s", percent(*r.ForeignCPU), percent(t.ForeignCPU), names(r.Foreign))
	}
	if exceeds(r.PSICPU, t.PSICPU, "the pressure on the processors") {
		state, text := Suspect, "the benchmark itself can be the cause"
		if foreign {
			state, text = Invalid, "foreign processes competed with the benchmark"
		}
		v.add(state, "processes waited for a processor during %s of the time (quiet.psiCpu: %s); %s", percent(*r.PSICPU), percent(t.PSICPU), text)
	}
	var slower *float64 // the share by which the fixed computation took longer than in the reference; negative if it was faster
	if r.SpinRatio != nil {
		slower = new(*r.SpinRatio - 1)
	}
	if exceeds(slower, t.Canary, "the speed of the processors before and after the trial") {
		v.add(Invalid, "fixed work took %s longer than in the reference (quiet.canary: %s)", percent(*slower), percent(t.Canary))
	}
	if slower != nil && t.Canary >= 0 && -*slower > t.Canary {
		v.add(Suspect, "fixed work took %s less time than in the reference (quiet.canary: %s): the reference was disturbed, or the processors became faster",
			percent(-*slower), percent(t.Canary))
	}
	if exceeds(r.SwapPages, t.SwapPages, "") {
		v.add(Invalid, "%.0f pages per second were swapped in or out (quiet.swapPages: %.0f)", *r.SwapPages, t.SwapPages)
	}
	if exceeds(new(float64(len(r.KernelAlerts))), t.Kernel, "") {
		for _, text := range r.KernelAlerts {
			v.add(stateOf(text), "the kernel logged: %s (quiet.kernelMessages: %g)", text, t.Kernel)
		}
	}
	if exceeds(r.ClockStep, t.Clock, "") {
		v.add(Invalid, "the clock of this computer was set by %.3g s (quiet.clock: %.3g s)", *r.ClockStep, t.Clock)
	}
	if r.FrequencyBusy != nil && t.Frequency >= 0 && *r.FrequencyBusy < t.Frequency {
		v.add(Suspect, "the fastest processor had %s of its maximum frequency while the processors were busy (quiet.frequency: %s)", percent(*r.FrequencyBusy), percent(t.Frequency))
	}
	for _, d := range r.Disturbances {
		v.add(Invalid, "the machine %s was %s", d.Machine, d.State)
	}
	for _, h := range r.Unobserved {
		v.add(Suspect, "noise of %s was not observed", h)
	}
	return v
}

// stateOf returns the state of a trial during which the kernel has logged a message.
func stateOf(message string) string {
	if strings.HasPrefix(message, cgroupMemory) {
		return Suspect
	}
	return Invalid
}

// names returns a list of programs with their process ids, such as `: 1234 stress, 77 cc1`.
func names(programs []Program) string {
	out, separator := "", ": "
	for _, p := range programs {
		out += fmt.Sprintf("%s%d %s", separator, p.PID, p.Name)
		separator = ", "
	}
	return out
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }
