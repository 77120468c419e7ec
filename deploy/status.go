package deploy

import (
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// What a node runs, seen from here.
const (
	AsDeployed    = "as deployed"    // what the last run left there
	OtherSystem   = "other system"   // something else than the last run left there
	NeverDeployed = "never deployed" // nobody deployed it from here or elsewhere
	UpToDate      = "up to date"     // what the hive says; known only once it was evaluated
	Drifted       = "differs"        // something else than the hive says
	NotNixOS      = "not NixOS"
	Unreachable   = "unreachable"
	NotBooted     = "not booted"    // its machine does not run, or is not there
	NotEvaluated  = "not evaluated" // so nobody knows whether it differs
)

// Status is how a node is.
type Status struct {
	Node        string   `json:"node"`
	System      string   `json:"system"`            // one of the words above
	Current     string   `json:"current,omitempty"` // store paths
	Booted      string   `json:"booted,omitempty"`
	BootDefault string   `json:"bootDefault,omitempty"`
	Deployed    string   `json:"deployed,omitempty"`          // what the last run left there
	Wanted      string   `json:"wanted,omitempty"`            // what the hive says
	Generation  int      `json:"generation,omitempty"`        // that runs
	Boots       int      `json:"defaultGeneration,omitempty"` // that boots next
	State       string   `json:"state,omitempty"`             // systemd's word
	FailedUnits []string `json:"failedUnits"`
	// Reasons are the last words of failed units, by unit.
	Reasons map[string]string `json:"reasons,omitempty"`
	Reboot  bool              `json:"rebootNeeded"`
	Uptime  int64             `json:"uptime,omitempty"` // seconds
	LastRun *LastRun          `json:"lastRun,omitempty"`
	// Machine is nil for nodes that nixbench does not boot, and where no hypervisor could be asked.
	Machine *MachineStatus `json:"machine,omitempty"`
	// Certificates that the node needs for what it runs together with others.
	Certificates []engine.Certificate `json:"certificates,omitempty"`
	Error        string               `json:"error,omitempty"`
	Time         time.Time            `json:"time"`
}

// LastRun is the last run that the node has on record, wherever it came from.
type LastRun struct {
	Run     string    `json:"run"`
	Goal    string    `json:"goal"`
	Outcome string    `json:"outcome,omitempty"` // empty while it goes on
	Time    time.Time `json:"time"`
	Text    string    `json:"text"`
	Armed   bool      `json:"armed"` // the node would go back by itself
	Alive   bool      `json:"alive"`
}

// StatusOf puts together what a node says and what is known here. wanted is nil unless
// the hive was evaluated.
func StatusOf(o Outcome[activate.Node], known state.Node, wanted map[string]nixeval.Closure, now time.Time) Status {
	s := Status{Node: o.Node.Name, FailedUnits: []string{}, Time: now}
	if known.LastConfirmed != nil {
		s.Deployed = known.LastConfirmed.Path
	}
	if wanted != nil {
		s.Wanted = wanted[o.Node.Unit].Out
	}
	if o.Err != nil {
		s.System, s.Error = Unreachable, o.Err.Error()
		return s
	}
	n := o.Value
	s.Current, s.Booted, s.BootDefault, s.Boots = n.Current, n.Booted, n.Profile, n.Generation
	s.State, s.Reboot, s.Uptime = n.System, n.RebootNeeded(), int64(n.Uptime/time.Second)
	s.FailedUnits = append(s.FailedUnits, n.Failed...)
	s.Generation = generationOf(n, n.Current)
	if r := n.Last; r != nil {
		s.LastRun = &LastRun{Run: r.ID, Goal: string(r.Goal), Outcome: string(r.Outcome), Time: r.Time, Text: r.String(), Armed: n.Armed(), Alive: r.Alive}
		if r.To == n.Current && (r.Outcome == activate.Committed || r.Outcome == activate.Activated || r.Outcome == activate.BootDefault) {
			s.Deployed = n.Current // from here or elsewhere; or it has been booted since
		}
	}
	s.System = s.word(n, wanted != nil)
	return s
}

func (s Status) word(n activate.Node, evaluated bool) string {
	switch {
	case !n.NixOS:
		return NotNixOS
	case evaluated && s.Wanted == "":
		return NotEvaluated
	case evaluated && s.Wanted == s.Current:
		return UpToDate
	case evaluated:
		return Drifted
	case s.Deployed == "" && len(n.Deployed) == 0:
		return NeverDeployed
	case s.Deployed == s.Current:
		return AsDeployed
	}
	return OtherSystem
}

// On says how the node's machine is. One that does not run cannot be reached, and that is
// no error of its own.
func (s Status) On(m *MachineStatus) Status {
	s.Machine = m
	if m.Off() && s.System == Unreachable {
		s.System, s.Error = NotBooted, ""
	}
	return s
}

// Well tells whether nobody need look at the node.
func (s Status) Well() bool {
	fine := s.System == AsDeployed || s.System == UpToDate
	return fine && len(s.FailedUnits) == 0 && s.State == "running"
}
