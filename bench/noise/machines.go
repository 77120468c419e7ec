package noise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// States of a machine that are read from the processes on this computer. A hypervisor reports further states.
const (
	stopped = "stopped"
	ended   = "off"
)

// running is the only state of a machine that is not a [Disturbance].
const running = "running"

// statesTimeout limits a request for the states of machines.
const statesTimeout = 10 * time.Second

// Disturbance says that a machine of the benchmark did not run at some time during a trial.
type Disturbance struct {
	Machine string `json:"machine"`
	State   string `json:"state"` // paused, stopped, off, crashed or absent
}

// disturbances is a set of disturbances.
type disturbances map[Disturbance]bool

func (d disturbances) add(states map[string]string) {
	for machine, state := range states {
		if state != running {
			d[Disturbance{machine, state}] = true
		}
	}
}

// with adds a disturbance to the set, and returns the set.
func (d disturbances) with(one Disturbance) disturbances {
	if d == nil {
		d = disturbances{}
	}
	d[one] = true
	return d
}

func (d disturbances) list() []Disturbance {
	return slices.SortedFunc(maps.Keys(d), func(a, b Disturbance) int {
		return strings.Compare(a.Machine+" "+a.State, b.Machine+" "+b.State)
	})
}

// machineStates returns the states of the machines whose processes do not run. It does not see paused machines; hypervisors report these.
func (s *Sampler) machineStates() map[string]string {
	if len(s.source.Machines) == 0 {
		return nil
	}
	out := map[string]string{}
	for machine, pid := range s.source.Machines {
		text := string(s.read(s.path("proc/" + strconv.Itoa(pid) + "/stat")))
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

// watcher asks hypervisors for the states of machines in the background, because an answer can take long.
type watcher struct {
	states func(context.Context) (map[string]string, error)
	mu     sync.Mutex
	seen   disturbances
	err    error // the error of the first request that failed
	stop   context.CancelFunc
	done   chan struct{}
}

// watch begins to call states once per interval. It returns nil if states is nil.
func watch(ctx context.Context, states func(context.Context) (map[string]string, error), interval time.Duration) *watcher {
	if states == nil {
		return nil
	}
	w := &watcher{states: states, seen: disturbances{}, done: make(chan struct{})}
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			w.ask(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

func (w *watcher) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statesTimeout)
	defer cancel()
	states, err := w.states(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.add(states)
	if err != nil && w.err == nil && ctx.Err() != context.Canceled {
		w.err = err
	}
}

// end asks for the states of machines a last time, and returns all disturbances that the watcher has seen.
func (w *watcher) end() (disturbances, error) {
	if w == nil {
		return nil, nil
	}
	w.stop()
	<-w.done
	w.ask(context.Background())
	return w.seen, w.err
}

// text returns what happened to a machine, such as `the machine w-1 was paused`.
func (d Disturbance) text() string { return fmt.Sprintf("the machine %s was %s", d.Machine, d.State) }
