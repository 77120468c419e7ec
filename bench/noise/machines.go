package noise

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

const statesTimeout = 10 * time.Second // for a request for the states of machines

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

// machineStates returns the states of the machines whose processes do not run. It does not see paused machines; hypervisors report these.
func (s *Sampler) machineStates() map[string]string {
	out := map[string]string{}
	for machine, pid := range s.source.Machines {
		text := string(s.read("proc/" + strconv.Itoa(pid) + "/stat"))
		state := strings.TrimSpace(text[strings.LastIndex(text, ")")+1:])
		switch {
		case state == "":
			if _, err := os.Stat(s.path("proc/" + strconv.Itoa(pid))); errors.Is(err, fs.ErrNotExist) { // after another error, the state is unknown
				out[machine] = ended
			}
		case state[0] == 'Z' || state[0] == 'X':
			out[machine] = ended
		case state[0] == 'T':
			out[machine] = stopped
		}
	}
	return out
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
