package noise

import (
	"fmt"
	"strconv"
	"strings"
)

// State is whether the result of a trial can be used.
type State string

// The states of a trial, from the best to the worst.
const (
	Valid   State = "valid"
	Suspect State = "suspect" // the result is kept, but shown with its reasons
	Invalid State = "invalid" // the trial is to be repeated
)

// Thresholds are the limits of noise of a trial, as shares. They are declared before the first trial. A verdict depends on them and on the
// observation of the machine only, never on the results of the trial. A negative threshold is not judged.
//
// PSICPU alone makes a trial suspect, and never invalid. The kernel counts pressure for all processes together, so that on a machine that
// runs the cluster's own machines the benchmark itself causes most of it. The pressure becomes a reason for an invalid trial only if foreign
// processes are above their limit, too, because then they have competed with the benchmark.
type Thresholds struct {
	Steal      float64 `json:"steal"`      // processor time that the hypervisor of this machine used for other machines, of all processor time
	ForeignCPU float64 `json:"foreignCPU"` // processor time of processes outside of the benchmark, of all processor time
	PSICPU     float64 `json:"psiCPU"`     // time in which a process waited for a processor, of the duration of the trial
	Canary     float64 `json:"canary"`     // by which fixed work took longer than in the reference
}

// DefaultThresholds returns the thresholds of a sweep that declares none.
func DefaultThresholds() Thresholds {
	return Thresholds{Steal: 0.01, ForeignCPU: 0.05, PSICPU: 0.05, Canary: 0.05}
}

// Verdict is whether a trial was disturbed, and why.
type Verdict struct {
	State   State    `json:"state"`
	Reasons []string `json:"reasons,omitempty"` // of a state other than valid
}

func (v *Verdict) add(s State, format string, args ...any) {
	if v.State != Invalid {
		v.State = s
	}
	v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
}

// Judge compares a report with the thresholds. What was not observed makes a trial suspect.
func (t Thresholds) Judge(r Report) Verdict {
	v := Verdict{State: Valid}
	// exceeds reports whether a value is above its limit.
	exceeds := func(value *float64, limit float64, name string) bool {
		if value == nil && limit >= 0 {
			v.add(Suspect, "%s was not observed", name)
		}
		return value != nil && limit >= 0 && *value > limit
	}
	if exceeds(r.Steal, t.Steal, "steal") {
		v.add(Invalid, "the hypervisor used %s of the processors for other machines (limit: %s)", percent(*r.Steal), percent(t.Steal))
	}
	foreign := exceeds(r.ForeignCPU, t.ForeignCPU, "the processor time of foreign processes")
	if foreign {
		v.add(Invalid, "foreign processes used %s of the processors (limit: %s)%s", percent(*r.ForeignCPU), percent(t.ForeignCPU), names(r.Foreign))
	}
	if r.UnseenCPU != nil && t.ForeignCPU >= 0 && *r.UnseenCPU > t.ForeignCPU {
		v.add(Suspect, "processes that were not visible, or ran only briefly, used %s of the processors (limit: %s)",
			percent(*r.UnseenCPU), percent(t.ForeignCPU))
	}
	if exceeds(r.PSICPU, t.PSICPU, "the pressure on the processors") {
		state, text := Suspect, "the benchmark itself can be the cause"
		if foreign {
			state, text = Invalid, "foreign processes competed with the benchmark"
		}
		v.add(state, "processes waited for a processor during %s of the time (limit: %s); %s", percent(*r.PSICPU), percent(t.PSICPU), text)
	}
	var slower *float64
	if r.SpinRatio != nil {
		slower = new(*r.SpinRatio - 1)
	}
	if exceeds(slower, t.Canary, "the speed of the processors before and after the trial") {
		v.add(Invalid, "fixed work took %s longer than in the reference (limit: %s)", percent(*slower), percent(t.Canary))
	}
	if slower != nil && t.Canary >= 0 && -*slower > t.Canary {
		v.add(Suspect, "fixed work took %s less time than in the reference (limit: %s): the reference was disturbed, or the processors became faster",
			percent(-*slower), percent(t.Canary))
	}
	for _, h := range r.Unobserved {
		v.add(Suspect, "noise of %s was not observed", h)
	}
	return v
}

// names lists programs as in `: 1234 stress, 77 cc1`.
func names(programs []Program) string {
	var out []string
	for _, p := range programs {
		out = append(out, fmt.Sprintf("%d %s", p.PID, p.Name))
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}

// percent writes a share with at least two significant digits.
func percent(share float64) string {
	digits := 0
	switch {
	case share < 0.1:
		digits = 2
	case share < 0.9995:
		digits = 1
	}
	text := strconv.FormatFloat(100*share, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + " %"
}
