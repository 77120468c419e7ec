// Package inspect reads the state of nodes: the systems that they run, and why systemd units failed. It also defines the
// conditions that the commands apply, check and status have in common. It changes nothing.
package inspect

import (
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Values of Status.System: what a node runs, compared with the state and the hive.
const (
	AsDeployed    = "as deployed"    // the system that the last run deployed
	OtherSystem   = "other system"   // another system than the last run deployed
	NeverDeployed = "never deployed" // no run, from here or elsewhere, has deployed the node
	UpToDate      = "up to date"     // the system of the hive; known only after an evaluation
	Drifted       = "differs"        // another system than the hive's; known only after an evaluation
	NotNixOS      = "not NixOS"
	Unreachable   = "unreachable"
	Away          = "away"          // not reachable, and may be away
	NotBooted     = "not booted"    // the node's machine does not run or does not exist
	NotEvaluated  = "not evaluated" // the system of the hive is unknown, so it cannot be compared
)

// Status is the observed state of a node, as nixbench status shows it.
type Status struct {
	Node        string   `json:"node"`
	System      string   `json:"system"`            // one of the constants above
	Role        string   `json:"role,omitempty"`    // empty for a named node
	Address     string   `json:"address,omitempty"` // empty if it is not known
	Current     string   `json:"current,omitempty"` // store path, like Booted and BootDefault
	Booted      string   `json:"booted,omitempty"`
	BootDefault string   `json:"bootDefault,omitempty"`
	Deployed    string   `json:"deployed,omitempty"`          // the system that the last run deployed
	Wanted      string   `json:"wanted,omitempty"`            // the system of the hive
	Generation  int      `json:"generation,omitempty"`        // the generation that runs
	Boots       int      `json:"defaultGeneration,omitempty"` // the generation that boots next
	State       string   `json:"state,omitempty"`             // of systemd, such as running or degraded
	FailedUnits []string `json:"failedUnits"`
	// Reasons contains the last log line of each failed systemd unit, by the name of the unit.
	Reasons map[string]string `json:"reasons,omitempty"`
	// Unhealthy names the health checks that do not pass, with their answers. It is empty unless the checks were asked for.
	Unhealthy string   `json:"unhealthy,omitempty"`
	Reboot    bool     `json:"rebootNeeded"`
	Uptime    int64    `json:"uptime,omitempty"` // seconds
	LastRun   *LastRun `json:"lastRun,omitempty"`
	// Machine is nil if nixbench does not manage the node's machine, or if no hypervisor answers.
	Machine *machine.Status `json:"machine,omitempty"`
	// Member is nil if the node is no member of a cluster, or if the cluster does not answer.
	Member *engine.Status `json:"member,omitempty"`
	// Figures is nil unless they were asked for.
	Figures *Figures `json:"figures,omitempty"`
	// Certificates contains the certificates of the node's cluster member.
	Certificates []engine.Certificate `json:"certificates,omitempty"`
	Error        string               `json:"error,omitempty"`
	Time         time.Time            `json:"time"`
}

// LastRun is the last run of nixbench that the node has recorded. The run may have been started on another computer.
type LastRun struct {
	Run     string    `json:"run"`
	Goal    string    `json:"goal"`
	Outcome string    `json:"outcome,omitempty"` // empty while the run is in progress
	Time    time.Time `json:"time"`
	Text    string    `json:"text"`
	Armed   bool      `json:"armed"` // the node rolls back by itself unless the run confirms the system
	Alive   bool      `json:"alive"`
}

// StatusOf combines what a node reports with what the state file of nixbench has recorded. desired contains the systems of the
// hive, and is nil unless the hive was evaluated.
func StatusOf(o fleet.Outcome[activate.Node], recorded state.Node, desired map[string]nixeval.Closure, now time.Time) Status {
	s := Status{Node: o.Node.Name, FailedUnits: []string{}, Time: now}
	if recorded.LastConfirmed != nil {
		s.Deployed = recorded.LastConfirmed.Path
	}
	if desired != nil {
		s.Wanted = desired[o.Node.Unit].Out
	}
	if o.Err != nil {
		s.System, s.Error = Unreachable, o.Err.Error()
		return s
	}
	n := o.Value
	s.Current, s.Booted, s.BootDefault, s.Boots = n.Current, n.Booted, n.Profile, n.Generation
	s.State, s.Reboot, s.Uptime = n.System, n.RebootNeeded(), int64(n.Uptime/time.Second)
	s.FailedUnits = append(s.FailedUnits, n.Failed...)
	s.Generation = n.GenerationOf(n.Current)
	if r := n.Last; r != nil {
		s.LastRun = &LastRun{Run: r.ID, Goal: string(r.Goal), Outcome: string(r.Outcome), Time: r.Time, Text: r.String(), Armed: n.Armed(), Alive: r.Alive}
		if r.To == n.Current && (r.Outcome == activate.Committed || r.Outcome == activate.Activated || r.Outcome == activate.BootDefault) {
			s.Deployed = n.Current // another computer may have deployed it, or the node has booted it since
		}
	}
	s.System = s.compareSystem(n, desired != nil)
	return s
}

// compareSystem returns what the node runs, compared with the system of the hive if evaluated is set, and otherwise with the
// system that the last run has deployed.
func (s Status) compareSystem(n activate.Node, evaluated bool) string {
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

// Healthy reports whether the node runs the expected system, has no failed units or health checks, and is ready if it is a member.
func (s Status) Healthy() bool {
	fine := s.System == AsDeployed || s.System == UpToDate
	return fine && len(s.FailedUnits) == 0 && s.Unhealthy == "" && s.State == "running" && (s.Member == nil || s.Member.Ready)
}
