package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
)

// Fake is an engine that records its calls, and returns an error for the calls that a test selects.
type Fake struct {
	mu         sync.Mutex
	Calls      []string // the calls, such as "drain w-1"
	Refuse     string   // the operation that returns an error, such as "drain"
	Registered map[string]engine.Status
	OnCall     func(what string)   // is called with each recorded call
	Blocked    map[string]string   // the work that blocks a drain, by node
	Broken     map[string]string   // the error of FindFaults, by node
	Stopped    map[string]string   // the systemd unit that is stopped, by node
	Options    engine.DrainOptions // the options of the last drain

	Undrainable string // the node whose drain fails
}

// call records a call of an engine's method on a node, and makes the change of the method. If the test has set Refuse to this method, call
// returns an error instead.
func (s *Fake) call(what, node string, change func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Calls = append(s.Calls, what+" "+node)
	if s.OnCall != nil {
		s.OnCall(what + " " + node)
	}
	if s.Refuse == what {
		return errors.New("the engine refuses")
	}
	change()
	return nil
}

func nothing() {}

func (s *Fake) Members(context.Context) (map[string]engine.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Refuse == "members" {
		return nil, errors.New("the engine does not answer")
	}
	return maps.Clone(s.Registered), nil
}

// Drain sets all nodes to drained, and then reports and records the drain of each node. If the drain of one node fails,
// it sets all nodes to not drained.
func (s *Fake) Drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	what := "drain"
	if o.Removal {
		what = "drain for removal"
	}
	s.setDrained(nodes, true)
	for _, node := range nodes {
		report(node, "drains")
		err := errors.Join(ctx.Err(), s.call(what, node, func() { s.Options = o }))
		if err == nil && s.Undrainable == node {
			err = errors.New("its work does not end")
		}
		if err != nil {
			s.setDrained(nodes, false)
			return engine.NewDrainError(node, err)
		}
	}
	return nil
}

func (s *Fake) setDrained(nodes []string, drained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range nodes {
		if m, isMember := s.Registered[node]; isMember {
			m.Drained = drained
			s.Registered[node] = m
		}
	}
}

// Deletable is the option that allows a drain to delete the work in [Fake.Blocked].
var Deletable = engine.DrainOption{Name: "work"}

// CheckDrain returns the work in s.Blocked. If the options contain [Deletable], the result says that the drain deletes the work,
// and otherwise that the work blocks the drain.
func (s *Fake) CheckDrain(_ context.Context, nodes []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	out := map[string]engine.DrainCheck{}
	for _, node := range nodes {
		var check engine.DrainCheck
		if work := s.Blocked[node]; work != "" {
			check.Add(o, Deletable, work, "is bare")
		}
		out[node] = check
	}
	return out, nil
}

func (s *Fake) FindFaults(_ context.Context, node string) ([]engine.Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := s.Broken[node]; why != "" {
		return nil, errors.New(why)
	}
	if unit := s.Stopped[node]; unit != "" {
		return []engine.Fault{{Unit: unit, State: "is stopped", Down: true, Lasts: true}}, nil
	}
	return nil, nil
}

func (s *Fake) ControlUnit(_ context.Context, node, verb, unit string) error {
	return s.call(verb, node+" "+unit, func() { delete(s.Stopped, node) })
}

func (s *Fake) Controllers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := slices.Sorted(maps.Keys(s.Registered))
	return slices.DeleteFunc(nodes, func(node string) bool { return !s.Registered[node].OneByOne })
}

func (s *Fake) RemoveMember(_ context.Context, node string) error {
	return s.call("remove", node, func() { delete(s.Registered, node) })
}

func (s *Fake) Versions(context.Context, []string) (map[string]engine.Change, error) {
	return nil, nil
}

func (s *Fake) Admit(_ context.Context, node string) error { return s.call("admit", node, nothing) }

func (s *Fake) WaitReady(_ context.Context, node string, report engine.Report) error {
	report(node, "waits")
	s.mu.Lock()
	m, isMember := s.Registered[node]
	s.mu.Unlock()
	if isMember && !m.Ready {
		return errors.New("it is not ready")
	}
	return s.call("wait for", node, nothing)
}

func (s *Fake) Uncordon(_ context.Context, node string) error {
	err := s.call("uncordon", node, nothing)
	if err == nil {
		s.setDrained([]string{node}, false)
	}
	return err
}

func (s *Fake) Conditions(engine.CheckOptions) []check.Condition {
	return []check.Condition{{Name: "well", Probe: func(context.Context) error { return s.call("look", "", nothing) }}}
}

func (s *Fake) Adjust(_ context.Context, nodes []string, _ bool) (map[string][]string, error) {
	changes := map[string][]string{}
	for _, node := range nodes {
		changes[node] = []string{"label a=b", "no label c"}
	}
	return changes, s.call("adjust", strings.Join(nodes, " "), nothing)
}

// MemberCalls returns the recorded calls without those of Adjust, in the order of the calls.
func (s *Fake) MemberCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.Calls), func(what string) bool { return strings.HasPrefix(what, "adjust") })
}

// AnswerLook answers the command with which an engine looks at the systemd units of a node. The second result is false if argv is
// another command. sub returns the sub-state of a systemd unit, such as running, or nothing if the node does not have the systemd
// unit. log is the log of each systemd unit. full contains the names of disks that are full.
func AnswerLook(argv []string, sub func(unit string) string, log string, full ...string) ([]byte, bool) {
	if len(argv) < 5 || argv[0] != "sh" || argv[3] != "sh" || !strings.Contains(argv[2], "ActiveEnterTimestamp") {
		return nil, false
	}
	var b strings.Builder
	b.WriteString("now=2000\n")
	for _, unit := range argv[4:] {
		state, load, restarts := sub(unit), "loaded", 0
		active := map[string]string{"running": "active", "dead": "inactive", "failed": "failed"}[state]
		switch {
		case state == "":
			load, active, state = "not-found", "inactive", "dead"
		case active == "":
			active, restarts = "activating", 7
		}
		fmt.Fprintf(&b, "Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nNRestarts=%d\nConditionResult=yes\nActiveEnterTimestamp=@1000\nWantedBy=multi-user.target\n\n", unit, load, active, state, restarts)
	}
	for _, unit := range argv[4:] {
		fmt.Fprintf(&b, "\nId=%s\nlog=%s\n", unit, log)
	}
	b.WriteString("disk=/dev/vda 1000000 500000 500000 50% /\n")
	for _, name := range full {
		fmt.Fprintf(&b, "disk=/dev/vdb 1000000 1000000 0 100%% %s\n", name)
	}
	return []byte(b.String()), true
}
